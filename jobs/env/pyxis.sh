# shellcheck shell=bash
# dynmo in a container of Pyxis and enroot. NOT RUN: written from the sources named here.
#
#   IMAGE=/path/dynmo.sqsh DYNMO=$PWD/bin/dynmo SITE=pyxis sbatch jobs/train.sbatch CONFIG
# The program is looked for on the host too, for `dynmo train --ranks`, and runs there:
# it must lie in a folder that the container mounts, and both must have its libraries.

# Options of srun. Source: https://github.com/NVIDIA/pyxis/wiki/Usage
: "${IMAGE:?a squashfs file, or USER@REGISTRY#IMAGE:TAG}"
export SRUN_OPTS="--container-image=$IMAGE --container-mounts=$PWD:$PWD --container-workdir=$PWD --no-container-mount-home"

# enroot's hook 50-slurm-pmi.sh must be on, or PMIx is not found in the container.
# Source: https://github.com/NVIDIA/pyxis/wiki/Setup
export MPI=pmix

# As in apptainer.sh.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
export PMIX_MCA_gds=hash
