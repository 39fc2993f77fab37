# shellcheck shell=bash
# Nodes of which others use a part, or more ranks than cores. Submit with
#   sbatch --exclusive=user --mem=8G --nodes=1 --ntasks=4 ...
# --exclusive=user: other jobs of yours may share the nodes.

# Ranks that wait give their core to others.
export OMPI_MCA_mpi_yield_when_idle=1

# Containers and hardened kernels do not let a process read another's memory.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
