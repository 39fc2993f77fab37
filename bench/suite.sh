#!/usr/bin/env bash
# Tests the working tree in bare Debian systems that debootstrap makes, as root:
#
#   bench/suite.sh SUITE...                  demo and test in each (bookworm, trixie, forky)
#   bench/suite.sh SUITE... -- COMMAND...    another command, in the root of the tree
#
# The systems and their logs lie in build/_suites. (Go looks into no folder of such a name.)
# What apt and Go fetch is kept there for the next time. The systems have this machine's
# network, and its certificates for Go's downloads. It ends with a table: suite, versions, and
# the parts that passed and failed.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/_suites
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

say() { printf '%s\n' "$*" >&2; }

# base SUITE: makes the bare system that every run copies.
base() {
	local script=/usr/share/debootstrap/scripts/$1
	[ ! -d "$root/$1.base" ] || return 0
	[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # a release that this debootstrap does not know
	say "== $1: debootstrap"
	mkdir -p "$root/$1.debs"
	rm -rf "$root/$1.new"
	debootstrap --variant=minbase --cache-dir="$root/$1.debs" "$1" "$root/$1.new" "$mirror" "$script" >"$root/$1.debootstrap.log" ||
		{ tail -n 20 "$root/$1.debootstrap.log" >&2; return 1; }
	# A mirror may be a frozen copy, whose lists have expired.
	echo 'Acquire::Check-Valid-Until "false";' >"$root/$1.new/etc/apt/apt.conf.d/99frozen"
	mv "$root/$1.new" "$root/$1.base"
}

# within SUITE COMMAND...: runs a command in the system of the suite. All mounts and
# processes end with it.
within() {
	local system=$root/$1 settings=() name
	for name in GOPROXY GOSUMDB GOFLAGS http_proxy https_proxy no_proxy; do
		[ -z "${!name:-}" ] || settings+=("$name=${!name}")
	done
	# shellcheck disable=SC2016 # expanded by the shell inside
	unshare --mount --pid --fork --kill-child --propagation private bash -euc '
		system=$1 archives=$2 modules=$3
		mount --rbind "$system" "$system" # a new mount namespace in it wants / to be a mount
		mount -t proc proc "$system/proc"
		mount --rbind /sys "$system/sys"
		mount --rbind /dev "$system/dev"
		mount -t tmpfs tmpfs "$system/dev/shm"
		mount --bind "$archives" "$system/var/cache/apt/archives"
		mount --bind "$modules" "$system/root/go/pkg/mod"
		cd "$system"
		exec chroot . /usr/bin/env -i "${@:4}"' sh "$system" "$root/$1.debs" "$root/modules" \
		HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SSL_CERT_FILE=/etc/ssl/dynmo.crt \
		"${settings[@]}" sh -c 'cd /dynmo && exec "$@"' sh "${@:2}" </dev/null
}

# fresh SUITE: makes the system anew, with the working tree in it.
fresh() {
	local system=$root/$1
	base "$1" || return
	rm -rf --one-file-system "$system"
	cp -a "$root/$1.base" "$system" || return
	mkdir -p "$root/modules" "$root/$1.debs/partial" "$system"/{dynmo,etc/ssl,root/go/pkg/mod}
	printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$system/etc/hosts"
	cp -L /etc/resolv.conf "$system/etc/resolv.conf"
	cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$system/etc/ssl/dynmo.crt" 2>/dev/null || true
	git ls-files -co --exclude-standard -z | { xargs -0 ls -d 2>/dev/null || true; } | tar cf - -T - | tar xf - -C "$system/dynmo"
}

# version SUITE PACKAGE...: prints the version of the first package that is installed.
version() {
	local package found
	for package in "${@:2}"; do
		# shellcheck disable=SC2016 # dpkg-query's own
		found=$(chroot "$root/$1" dpkg-query -W -f '${Version}' "$package" 2>/dev/null | sed 's/^[0-9]*://; s/[-+~].*//') || true
		[ -z "$found" ] || break
	done
	echo "${found:--}"
}

# row SUITE STATUS: prints a line of the table.
row() {
	local log=$root/$1.log parts failed
	parts=$(grep -acE '^== .*: [0-9]+ s, CPU' "$log" || true)
	failed=$(grep -a '^FAILED:' "$log" | grep -o '\[' | wc -l || true)
	[ "$2" = 0 ] || [ "$failed" != 0 ] || failed=1
	printf '%-10s %-9s %-9s %-8s %-8s %-9s %-7s %-7s %6s %6s\n' "$1" "$(version "$1" openmpi-bin)" "$(version "$1" mpich)" "$(version "$1" slurmd)" \
		"$(version "$1" libpmix2t64 libpmix2)" "$(version "$1" libopenblas0-pthread)" "$(version "$1" gcc)" "$(version "$1" golang-go)" $((parts - failed > 0 ? parts - failed : 0)) "$failed"
}

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	suites+=("$1")
	shift
done
[ $# = 0 ] || shift
[ ${#suites[@]} != 0 ] || { say 'usage: ./build.sh test-on SUITE... [-- COMMAND...], such as trixie'; exit 2; }
[ "$(id -u)" = 0 ] || { say 'test-on makes other systems: it wants root'; exit 2; }
command -v debootstrap >/dev/null || { say 'test-on wants debootstrap: apt-get install debootstrap'; exit 2; }
# shellcheck disable=SC2016 # expanded in the system
[ $# != 0 ] || set -- bash -c 'TIMEFORMAT="== demo: %0R s, CPU %0U + %0S s"; time ./build.sh demo; demo=$?; [ $demo = 0 ] || echo "FAILED: [demo]"; ./build.sh test && exit $demo'

all=0 rows=()
for suite in "${suites[@]}"; do
	fresh "$suite" || { say "== $suite: no system"; all=1; continue; }
	status=0
	within "$suite" "$@" 2>&1 | tee "$root/$suite.log" || status=$?
	[ "$status" = 0 ] || all=1
	rows+=("$(row "$suite" "$status")")
done
printf '\n%-10s %-9s %-9s %-8s %-8s %-9s %-7s %-7s %6s %6s\n' suite OpenMPI MPICH Slurm PMIx OpenBLAS gcc Go passed failed
printf '%s\n' "${rows[@]}"
exit "$all"
