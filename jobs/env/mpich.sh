# shellcheck shell=bash
# MPICH, built with `MPICC=mpicc.mpich ./build.sh build` (tried: 4.0.2, 4.2.1, 5.0.2).
#
# Run: by mpirun.mpich, and by srun --mpi=pmi2 on simulated nodes (4.0.2 with Slurm 22.05,
# 5.0.2 with 26.05). Weights are those of a run with Open MPI, bit for bit. Under --mpi=pmix
# Debian's MPICH makes every rank a world of its own, which dynmo refuses.
# An MPICH that was configured --with-pmix wants MPI=pmix
# (https://slurm.schedmd.com/mpi_guide.html, "MPICH").
# MPI=mpirun takes the mpirun that is first on PATH: it must be MPICH's.
export MPI=pmi2

# Not solved: with 4.0.2 on four simulated nodes over UCX's TCP (UCX_TLS=tcp,self) a run that
# packed itself onto fewer ranks recorded everything, and then MPI_Finalize did not return.
# With 5.0.2 the same run ends.

# MPICH ends all ranks together. elastic.release = "slurm" and "exit" give one warning, and
# ranks without layers wait to the end of the run; "restart" gives nodes back.

# MPICH over UCX (`mpichversion` says which): the transports, where it finds the wrong ones.
# export UCX_TLS=rc,sm,self
