# shellcheck shell=bash
# MPICH, built with `MPICC=mpicc.mpich ./build.sh build` (Debian 12: MPICH 4.0.2).
#
# Run: by mpirun.mpich and by srun --mpi=pmi2, on one host and on two simulated nodes.
# Weights are those of a run with Open MPI, bit for bit. Under --mpi=pmix Debian's MPICH
# makes every rank a world of its own, which dynmo refuses: it knows PMI-1 and PMI-2 only.
# An MPICH that was configured --with-pmix wants MPI=pmix
# (https://slurm.schedmd.com/mpi_guide.html, "MPICH").
export MPI=pmi2

# Not solved: on four simulated nodes over UCX's TCP (UCX_TLS=tcp,self) a run that packed
# itself onto fewer ranks recorded everything, and then MPI_Finalize did not return.

# Only PMIx lets a rank leave while others go on. Here elastic.release = "slurm" and "exit"
# give one warning, and ranks without layers wait to the end of the run.

# MPICH over UCX (`mpichversion` says which): the transports, where it finds the wrong ones.
# export UCX_TLS=rc,sm,self
