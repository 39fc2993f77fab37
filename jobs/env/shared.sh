# shellcheck shell=bash
# Nodes that jobs of others share, or more ranks than cores. Submit with
#   sbatch --exclusive=user --mem=8G --nodes=1 --ntasks=4 ...
# --exclusive=user: other jobs of yours may share the nodes.

# Ranks that wait give their core to others.
export OMPI_MCA_mpi_yield_when_idle=1

# Open MPI 4.1 names its shared memory /dev/shm/vader_segment.HOST.UID.JOB.RANK, where JOB
# is a hash of Slurm's job and step. Containers or clusters that share a host, its /dev/shm
# and its name can thus write into each other's ranks. Such ranks die of SIGSEGV in MPI_Init
# or hang in the first collective. Give each its own /dev/shm, as Slurm's job_container/tmpfs
# does, or leave shared memory out:
# export OMPI_MCA_btl=self,tcp

# Containers and hardened kernels do not let a process read another's memory. The first name
# is that of Open MPI 4, the second that of 5 and 6.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
