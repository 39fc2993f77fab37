# shellcheck shell=bash
# InfiniBand or RoCE: Open MPI over UCX, and NCCL over the same adapters. NOT RUN.
# shellcheck source=jobs/env/modules.sh
. "$(dirname "${BASH_SOURCE[0]}")/modules.sh"

# UCX is an error where it is missing, in place of a silent fall back to TCP.
export OMPI_MCA_pml=ucx

# Adapters: `ibv_devinfo -l` lists them. Without these UCX and NCCL take those nearest
# to each GPU, which is right unless some ports are for storage.
# export UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1
# export NCCL_IB_HCA=mlx5_0,mlx5_1

# Where ranks find each other before the adapters are used.
# export NCCL_SOCKET_IFNAME=ib0

# GPUDirect: NCCL uses it where the module nvidia_peermem is loaded, or dma-buf serves.
# `NCCL_DEBUG=INFO` then says "GDRDMA"; PHB allows it below one host bridge, SYS anywhere.
# Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
# export NCCL_NET_GDR_LEVEL=PHB

# MPI carries memory of the host only, so that UCX needs no transport of CUDA: device
# transports are left out. Source: https://openucx.readthedocs.io, "UCX environment parameters".
# export UCX_TLS=rc,sm,self
