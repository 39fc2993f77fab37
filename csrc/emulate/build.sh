#!/usr/bin/env bash
# Builds the emulator of CUDA: csrc/emulate/build.sh DIR [--selftest] makes
#
#   DIR/libcuda.so.1       the driver
#   DIR/libnccl.so.2       NCCL
#   DIR/libdynmo_cuda.so   all kernels of csrc/cuda, for the host
#
# and with --selftest tests it. CUDA's headers are those of ${CUDA_HOME:-/usr}/include.
# What is up to date stays. Overrides: CXX, CXXFLAGS, JOBS (2).
set -euo pipefail
[ $# -ge 1 ] || { echo 'usage: csrc/emulate/build.sh DIR [--selftest]' >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

exec 9>"$dir/lock"
flock 9 # tests of several packages build at once

include=${CUDA_HOME:-/usr}/include
[ -e "$include/cuda.h" ] || { echo "emulator: no cuda.h in $include: set CUDA_HOME" >&2; exit 1; }
host=
! grep -qw avx2 /proc/cpuinfo || ! grep -qw fma /proc/cpuinfo || host=-march=x86-64-v3
compile="${CXX:-g++} -std=c++17 -O2 -g1 -ffp-contract=off -fno-strict-aliasing $host -Wall -Wextra -Wno-unknown-pragmas -Wno-psabi -fPIC"
compile+=" -fvisibility=hidden -pthread -DDYNMO_EMULATE -DDYNMO_HOPPER -Iinclude -idirafter $include ${CXXFLAGS:-}"
export compile
[ "$(cat "$dir/flags" 2>/dev/null)" = "$compile" ] || rm -f "$dir"/*.o
echo "$compile" >"$dir/flags"

# stale FILE INPUT...: whether FILE is missing or older than an INPUT, or one is gone.
stale() { [ ! -e "$1" ] || [ -n "$(find "${@:2}" -newer "$1" -print -quit 2>&1)" ]; }

object() { echo "$dir/$(basename "$1").o"; }

# compile SOURCE...: makes those objects anew that a changed file went into.
compile() {
	local source object
	for source; do
		object=$(object "$source")
		# shellcheck disable=SC2046
		if [ ! -e "$object.d" ] || stale "$object" $(sed 's/^.*\.o://; s/\\$//' "$object.d"); then
			echo "$source $object"
		fi
	done | xargs -r -P "${JOBS:-2}" -L 1 bash -c 'nice $compile -MMD -MF "$1.d" -x c++ -c "$0" -o "$1"'
}

# library NAME "FLAGS" SOURCE...
library() {
	local name=$dir/$1 flags=$2 source objects=()
	shift 2
	compile "$@"
	for source; do
		objects+=("$(object "$source")")
	done
	if stale "$name" "${objects[@]}"; then
		# shellcheck disable=SC2086
		${CXX:-g++} -shared -pthread -Wl,-z,defs,-soname,"${name##*/}" -o "$name.new" "${objects[@]}" $flags
		mv "$name.new" "$name" # a process may have the old one open
	fi
}

driver=(emulate/{driver,stream,event,graph,memory,resident,attributes,held,unsupported}.cpp)
cuda="-L$dir -l:libcuda.so.1 -Wl,-rpath,\$ORIGIN"
device=(emulate/{block,runtime}.cpp)
library libcuda.so.1 '' "${driver[@]}"
library libnccl.so.2 "$cuda" emulate/nccl*.cpp
if [ "${2:-}" = --selftest ]; then
	compile "${device[@]}" emulate/selftest.cpp
	${CXX:-g++} -pthread -o "$dir/selftest" "$dir"/{driver,stream,event,graph,memory,resident,attributes,held,block,runtime,selftest}.cpp.o
	"$dir/selftest"
fi
library libdynmo_cuda.so "$cuda -ldl" "${device[@]}" emulate/blaslt.cpp cuda/*.cu
