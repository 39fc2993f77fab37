# shellcheck shell=bash
# HPE Cray MPICH on Slingshot. NOT RUN: written from the sources named here. Build:
#   MPICC=cc ./build.sh build
# shellcheck source=jobs/env/slingshot.sh
. "$(dirname "${BASH_SOURCE[0]}")/slingshot.sh"

# The compiler wrapper cc brings cray-mpich.
# Source: https://nrel.github.io/HPC, "Documentation: Cray-MPICH".
# module load PrgEnv-gnu cray-mpich

# Slurm's plugin for the Cray PMI; `srun --mpi=list` must show it.
# Source: https://slurm.schedmd.com/mpi_guide.html (HPE Cray PMI).
export MPI=cray_shasta
unset OMPI_MCA_pml OMPI_MCA_mtl

# dynmo hands MPI no memory of GPUs, so the GPU transport library is not needed. With 1,
# a program that is not linked with that library ends in MPI_Init.
# Source: https://docs.cscs.ch, "Cray MPICH".
export MPICH_GPU_SUPPORT_ENABLED=0

# The cache of memory registrations may hang larger runs.
# Source: https://docs.cscs.ch, "Cray MPICH hangs".
# export FI_MR_CACHE_MONITOR=disabled
