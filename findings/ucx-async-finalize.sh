#!/usr/bin/env bash
# Open MPI has a parameter, async_mpi_finalize, with which MPI_Finalize does not wait for the other
# ranks. Over TCP it returns at once (pml ob1). Over UCX (pml ucx) it waits all the same, until the
# other ranks call MPI_Finalize too: its teardown has a fence of its own. Nothing says so.
#
# Seen with Open MPI 5.0.7 and UCX 1.18.1 of Debian 13. Here rank 1 calls MPI_Finalize at once and
# rank 0 two seconds later:
#
#   ob1, TCP: MPI_Finalize of rank 1 took 0.0 s
#   ucx, TCP: MPI_Finalize of rank 1 took 2.0 s
#
# The same was seen with 4.1.4 of Debian 12 and 6.0.0rc2 of Debian testing.
set -euo pipefail
system=$(mktemp -d)
trap 'rm -rf --one-file-system "$system"' EXIT
{
	debootstrap --variant=minbase trixie "$system" http://deb.debian.org/debian &&
		chroot "$system" apt-get install -qq -y --no-install-recommends openmpi-bin libopenmpi-dev gcc libc6-dev
} >"$system.log" 2>&1 || { tail -n 3 "$system.log"; echo "no system: $system.log"; exit 3; }
rm -f "$system.log"
version=$(chroot "$system" mpirun --version | sed -n '1s/.* //p')
echo "Open MPI $version"
[ "$version" = 5.0.7 ] || { echo "want 5.0.7"; exit 3; }
cat >"$system/tmp/early.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int argc, char **argv) {
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		sleep(2);
	double began = now();
	MPI_Finalize();
	if (rank == 1)
		printf("%.1f\n", now() - began);
	return 0;
}
END
chroot "$system" mpicc /tmp/early.c -o /tmp/early

# seconds NAME=VALUE...: prints how long MPI_Finalize of rank 1 took.
seconds() {
	unshare --mount --pid --fork --kill-child chroot "$system" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		OMPI_MCA_async_mpi_finalize=1 "$@" sh -c 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /dev/shm; exec timeout 60 mpirun --oversubscribe -n 2 /tmp/early'
}
tcp=$(seconds OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo)
ucx=$(seconds OMPI_MCA_pml=ucx UCX_TLS=tcp,self OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any)
echo "ob1, TCP: MPI_Finalize of rank 1 took $tcp s"
echo "ucx, TCP: MPI_Finalize of rank 1 took $ucx s"
awk -v tcp="$tcp" -v ucx="$ucx" 'BEGIN { exit !(tcp < 1 && ucx >= 1.5) }'
