# shellcheck shell=bash
# dynmo in an Apptainer (or Singularity) image. NOT RUN: Debian 12 has no package.
#
# train.sbatch starts a program without arguments before dynmo's: give it a wrapper,
#   DYNMO=$PWD/dynmo-in-image SITE=apptainer sbatch jobs/train.sbatch CONFIG
# which is an executable file of two lines:
#   #!/bin/sh
#   exec apptainer exec --nv --bind "$PWD" /path/dynmo.sif /usr/local/bin/dynmo "$@"
# --nv: the driver of the host's GPUs. srun starts one container for each rank. The MPI in
# the image must be as new as PMIx of the host's Slurm allows.
# Source: https://apptainer.org/docs/user/latest/mpi.html, "Hybrid model".

# Containers of one node do not share a user namespace, so that one cannot read the memory
# of another. Source: https://github.com/ostueker/apptainer_openmpi_test
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma

# PMIx of the image is another one than the host's: they share no store in memory.
# Source: the same, which leaves out the store "ds12".
export PMIX_MCA_gds=hash
