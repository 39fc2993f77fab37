# shellcheck shell=bash
# Environment modules: those that bin/dynmo was built with.
#
# A batch script does not always have the command `module`; Lmod and Environment
# Modules leave its definition in one of these files.
# The scripts of sites are not written for `set -u`, which is off while they run.
case $- in *u*) unset_is_error=yes ;; *) unset_is_error='' ;; esac
set +u
for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash; do
	# shellcheck disable=SC1090 # the site's
	command -v module >/dev/null || [ ! -r "$file" ] || . "$file"
done
if command -v module >/dev/null; then
	module load openmpi openblas
else
	echo "modules.sh: no command module on $(hostname): nothing was loaded" >&2
fi

# For device.kind = "cuda" (the driver comes with the node, libnccl with a module):
# module load cuda nccl
[ -z "$unset_is_error" ] || set -u
