# shellcheck shell=bash
# Environment modules: those that bin/dynmo was built with.
#
# A batch script does not always have the command `module`; Lmod and Environment
# Modules leave its definition in one of these files.
for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash; do
	# shellcheck disable=SC1090 # the site's
	command -v module >/dev/null || [ ! -r "$file" ] || . "$file"
done
module load openmpi openblas

# For device.kind = "cuda" (the driver comes with the node, libnccl with a module):
# module load cuda nccl
