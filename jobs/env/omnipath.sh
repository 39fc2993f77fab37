# shellcheck shell=bash
# Omni-Path: Open MPI over PSM2 or, for newer adapters, over libfabric's provider opx.
# NOT RUN: written from the sources named here.
# shellcheck source=jobs/env/modules.sh
. "$(dirname "${BASH_SOURCE[0]}")/modules.sh"

# Source: https://www.open-mpi.org/faq/?category=opa
export OMPI_MCA_pml=cm
export OMPI_MCA_mtl=psm2

# Cornelis moves from PSM2 to opx; adapters of 400 Gbit/s have opx only.
# Source: https://github.com/easybuilders/easybuild-framework/issues/4560
# export OMPI_MCA_mtl=ofi FI_PROVIDER=opx

# Two adapters in a node: 1 uses all, 2 those of the rank's NUMA node.
# export PSM2_MULTIRAIL=2

# NCCL over PSM2 wants a plugin, https://github.com/cornelisnetworks/psm2-nccl, on
# LD_LIBRARY_PATH; without it NCCL takes the adapters' verbs or TCP.
