# shellcheck shell=bash
# HPE Slingshot 11: Open MPI and NCCL over libfabric's provider cxi. NOT RUN: written from
# the sources named here.
# shellcheck source=jobs/env/modules.sh
. "$(dirname "${BASH_SOURCE[0]}")/modules.sh"

# Open MPI through libfabric, which must have the provider: `fi_info -p cxi`.
# Source: https://docs.open-mpi.org, "OpenFabrics Interfaces (OFI) / Libfabric support".
export OMPI_MCA_pml=cm
export OMPI_MCA_mtl=ofi
export FI_PROVIDER=cxi

# NCCL wants the plugin aws-ofi-nccl. Named so, NCCL ends where it misses the plugin; else
# it falls back to TCP. Source of this and what follows: https://docs.cscs.ch, "NCCL", and
# https://docs.isambard.ac.uk, "NCCL" (env_vars.sh).
export NCCL_NET='AWS Libfabric'
export NCCL_NET_GDR_LEVEL=PHB
export NCCL_CROSS_NIC=1
export NCCL_SOCKET_IFNAME=hsn
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_MR_CACHE_MONITOR=userfaultfd
export FI_CXI_DEFAULT_CQ_SIZE=131072
# export FI_CXI_RX_MATCH_MODE=hybrid # receive queues overflow into memory
