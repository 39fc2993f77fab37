#!/usr/bin/env bash
# mpirun has a daemon on every other node. If a node goes down, mpirun says "PRTE has lost
# communication with a remote daemon", and terminates the job. In about half of the cases mpirun of
# Open MPI 5.0.7 then ends with status 0, as if the job had succeeded. Else it ends with 137.
#
# Here the "other node" is a second host name of this machine, and its daemon is killed, up to 12
# times. Seen with Open MPI 5.0.7 (PRRTE 3.0.8) of Debian 13; 6.0.0rc2 of Debian testing ends with 1:
#
#   PRTE has lost communication with a remote daemon.
#   statuses: 137 0
set -euo pipefail
system=$(mktemp -d)
trap 'rm -rf --one-file-system "$system"' EXIT
{
	debootstrap --variant=minbase trixie "$system" http://deb.debian.org/debian &&
		chroot "$system" apt-get install -qq -y --no-install-recommends openmpi-bin procps
} >"$system.log" 2>&1 || { tail -n 3 "$system.log"; echo "no system: $system.log"; exit 3; }
rm -f "$system.log"
version=$(chroot "$system" mpirun --version | sed -n '1s/.* //p')
echo "Open MPI $version"
[ "$version" = 5.0.7 ] || { echo "want 5.0.7"; exit 3; }
cat >"$system/tmp/agent" <<'END'
#!/bin/sh
# in place of ssh: runs a command under the name of the other node
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec unshare --uts sh -c 'hostname other; exec sh -c "$*"' sh "$*"
END
chmod +x "$system/tmp/agent"
echo "127.0.0.1 localhost other" >"$system/etc/hosts"
# shellcheck disable=SC2016 # expanded in the system
unshare --mount --uts --pid --fork --kill-child chroot "$system" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=/tmp/agent bash -c '
	mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /dev/shm; hostname first; cd /tmp
	echo 127.0.0.1 first >>/etc/hosts
	for try in 1 2 3 4 5 6 7 8 9 10 11 12; do
		mpirun -n 2 --host first:1,other:1 sleep 60 >output 2>&1 &
		mpirun=$!
		sleep 3
		pkill -KILL -x prted
		status=0
		wait $mpirun || status=$?
		echo $status >>statuses
		pkill -KILL -x sleep
		[ $status != 0 ] || break
	done' 2>/dev/null || true
tr -d '\0' <"$system/tmp/output" | grep 'lost communication'
echo "statuses: $(xargs <"$system/tmp/statuses")"
grep -qx 0 "$system/tmp/statuses"
