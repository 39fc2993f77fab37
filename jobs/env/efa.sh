# shellcheck shell=bash
# AWS with Elastic Fabric Adapters: Open MPI and NCCL over libfabric's provider efa.
# NOT RUN: written from the sources named here.

# The EFA installer's folders; that of the plugin aws-ofi-nccl has had several names.
# Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html and
# https://github.com/NVIDIA-NeMo/RL/pull/2359
export PATH=/opt/amazon/openmpi/bin:/opt/amazon/efa/bin:$PATH
export LD_LIBRARY_PATH=/opt/amazon/openmpi/lib:/opt/amazon/efa/lib:/opt/amazon/aws-ofi-nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# UCX takes the adapter for InfiniBand, and fails.
# Source: https://github.com/open-mpi/ompi/issues/9858
export OMPI_MCA_pml=cm
export OMPI_MCA_mtl=ofi
export FI_PROVIDER=efa

# NCCL through the plugin aws-ofi-nccl; without it NCCL ends, in place of TCP.
export NCCL_NET='AWS Libfabric'
export NCCL_SOCKET_IFNAME=^lo,docker

# GPUDirect on p4d. Source: https://github.com/aws/sagemaker-training-toolkit, pull 196.
# export FI_EFA_USE_DEVICE_RDMA=1
