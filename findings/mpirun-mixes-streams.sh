#!/usr/bin/env bash
# mpirun forwards the standard output and the standard error of ranks to its own. Open MPI 5.0.7 gives
# parts of one stream to the other when a rank writes to both in quick succession. A program that
# reads results from mpirun's standard output can thus lose some of them.
#
# Seen with Open MPI 5.0.7 (PRRTE 3.0.8) of Debian 13, of 4 ranks that write 400 words to each:
#
#   in 10 runs 57 words of standard output came on standard error, 8 the other way round
#
# It was not seen with 4.1.4 of Debian 12, nor with 6.0.0rc2 of Debian testing.
set -euo pipefail
system=$(mktemp -d)
trap 'rm -rf --one-file-system "$system"' EXIT
{
	debootstrap --variant=minbase trixie "$system" http://deb.debian.org/debian &&
		chroot "$system" apt-get install -qq -y --no-install-recommends openmpi-bin
} >"$system.log" 2>&1 || { tail -n 3 "$system.log"; echo "no system: $system.log"; exit 3; }
rm -f "$system.log"
version=$(chroot "$system" mpirun --version | sed -n '1s/.* //p')
echo "Open MPI $version"
[ "$version" = 5.0.7 ] || { echo "want 5.0.7"; exit 3; }
# shellcheck disable=SC2016 # expanded in the system
unshare --mount --pid --fork --kill-child chroot "$system" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 sh -c '
	mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /dev/shm; cd /tmp
	for run in 1 2 3 4 5 6 7 8 9 10; do
		timeout 60 mpirun --oversubscribe -n 4 sh -c "for i in 1 2 3 4 5 6 7 8 9 10; do
			printf out; printf err >&2; printf out; printf \"err\n\" >&2; printf \"out\n\"
		done" >>output 2>>error
	done'
wrong=$(grep -ao out "$system/tmp/error" | wc -l) other=$(grep -ao err "$system/tmp/output" | wc -l)
echo "in 10 runs $wrong words of standard output came on standard error, $other the other way round"
[ $((wrong + other)) -gt 0 ]
