#!/usr/bin/env bash
# All that needs a GPU, in one call of under ten minutes.
#
#   bench/gpu.sh prepare [REVISION]
#                          makes build/gpu/pack.tar.gz, on a machine with Go, nvcc and Open
#                          MPI: all Go programs, the kernels for ARCHS (80 90), and their
#                          libraries. Operations are measured by the kernels of REVISION too
#   bench/gpu.sh all OUT   runs all parts, in a repository with that file, on a machine with a
#                          GPU, python3, and a CUDA toolkit or the Python packages of cuBLASLt
#                          and cuSPARSE
#   bench/gpu.sh run OUT PART...
#                          runs the build and these parts
#
# The build takes the kernels of the pack if there is no nvcc. OUT gets summary.txt, which is
# printed too and can be kept in results, and log.txt, the output of every part. It also gets
# the parts' findings: figures*.json, pytorch*.json, costs-*, kernels.txt, clocks.csv. The most
# valuable parts come first. Each has a limit in seconds; a part with no time left is named.
# The status is 0 if no part failed, 1 if one did, 2 if something is missing. With the
# variables of `./build.sh env cuda` and no GPU the script runs on the emulator.
set -euo pipefail
cd "$(dirname "$0")/.."

pack=$PWD/build/gpu/files
archive=$PWD/build/gpu/pack.tar.gz
seconds=${DYNMO_GPU_SECONDS:-570} # for all parts together
command=$*
theirs=${LD_LIBRARY_PATH:-}       # without what programs of build/gpu need

source bench/machine.sh
source bench/mpi.sh
source bench/cuda.sh
source bench/gpu_pack.sh
source bench/gpu_parts.sh

# ours sets the environment of the programs in build/gpu. A host may have more ranks than
# cores. PMIx takes no plugins, because those of this system are of another version.
ours() {
	local library
	# shellcheck disable=SC2031
	export PATH="$pack/bin:$PATH:/usr/local/nvidia/bin" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$pack/lib:/usr/local/nvidia/lib64"
	export OPAL_PREFIX=$pack OPAL_BINDIR=$pack/bin OPAL_PKGLIBDIR=$pack/openmpi OPAL_PKGDATADIR=$pack/share
	mpi_environment
	export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_plm=isolated PRTE_PREFIX=$pack PMIX_PREFIX=$pack
	export PMIX_MCA_mca_base_component_disable_dlopen=1 PMIX_MCA_pcompress_base_silence_warning=1
	for library in $(wheel libcublasLt.so) $(wheel libcusparse.so); do
		LD_LIBRARY_PATH+=":${library%/*}"
	done
	if [ -z "${DYNMO_CUDA_LIBRARY:-}" ]; then
		DYNMO_CUDA_LIBRARY=$pack/lib/libdynmo_cuda.so
		! toolkit || [ ! -f lib/libdynmo_cuda.so ] || DYNMO_CUDA_LIBRARY=$PWD/lib/libdynmo_cuda.so
	fi
	export DYNMO_CUDA_LIBRARY DYNMO_NCCL_LIBRARY=${DYNMO_NCCL_LIBRARY:-$(wheel libnccl.so)}
}

# wheel FILE: a file (the start of its name) of NVIDIA's Python packages.
wheel() {
	python3 -c 'import glob, nvidia, sys
print(*[f for d in nvidia.__path__ for f in glob.glob(f"{d}/**/{sys.argv[1]}*", recursive=True)][:1])' "$1" 2>/dev/null || true
}

# gpu_name prints what the driver calls its first GPU.
gpu_name() {
	python3 - <<-'END' 2>/dev/null
		import ctypes
		try:
		    driver = ctypes.CDLL("libcuda.so.1")
		except OSError:
		    driver = ctypes.CDLL("/usr/local/nvidia/lib64/libcuda.so.1")
		count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
		assert driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
		assert driver.cuDeviceGetName(name, 256, 0) == 0
		print(name.value.decode())
	END
}

emulated() { case $gpu in *emulated*) ;; *) return 1 ;; esac; }

# part NAME LIMIT: runs a part in a process of its own. The process is killed after LIMIT
# seconds, or when the time of all parts is over.
part() {
	local name=$1 limit=$(($2 * slower)) left=$((seconds * slower - SECONDS)) begin status=0 verdict
	case " build $chosen " in *" all "* | *" $name "*) ;; *) return 0 ;; esac
	[ "$limit" -le "$left" ] || limit=$left
	say "== $name, at $SECONDS s"
	begin=$(date +%s)
	if [ "$limit" -lt 5 ]; then
		verdict='NO TIME'
	else
		gpu=$gpu work=$work timeout -k 5 "$limit" bash bench/gpu.sh part "$name" "$out" \
			>"$work/$name.log" 2>&1 </dev/null || status=$?
		case $status in
		0) verdict=ok ;;
		3) verdict='not here' ;;
		124 | 137) verdict="KILLED after $limit s" ;;
		*) verdict="FAILED ($status)" ;;
		esac
	fi
	printf '%s\t%s\t%s\t%s\n' "$name" "$verdict" "$begin" "$(date +%s)" >>"$work/parts.tsv"
	{ printf '\n==== %s\n' "$name" && tail -c 1000000 "$work/$name.log" 2>/dev/null; } >>"$out/log.txt" || true
}

# parts runs the most valuable parts first. Parts with timings have the machine to themselves.
# The parts after ranks get the rest of the time. An H100 took five minutes for the parts up to
# ranks before there were the parts before and bits.
parts() {
	part build 60
	part doctor 5
	part conformance 35
	part step 25
	part pytorch 125
	part operations 60
	part before 60
	part bits 120
	part sparse 60
	part node 60
	part device 10
	part nccl 10
	part graphs 45
	part profile 20
	part profiler 30
	part pruned 25
	part pruning 10
	part ranks 90
	part lanes 45
	part memcheck_f32 300 &
	part memcheck_bf16 300 &
	part racecheck_f32 300 &
	part racecheck_bf16 300 &
	# shellcheck disable=SC2046
	wait $(jobs -p | grep -vx "$sampler")
}

# call OUT PART...: the build, then these parts.
call() {
	local sampler=''
	mkdir -p "$1"
	out=$(cd "$1" && pwd) chosen=${*:2}
	gpu=$(gpu_name) || gpu=''
	missing "$gpu"
	rm -rf "$pack"
	mkdir -p "$pack"
	tar -C "$pack" -xzf "$archive"
	work=$PWD/build/gpu/run slower=1
	! emulated || slower=10
	rm -rf "$work"
	mkdir -p "$work"
	: >"$out/log.txt"
	rm -f "$out"/figures*.json "$out"/pytorch*.json "$out/kernels.txt" # of other revisions
	cat src/*/*.go >"$work/corpus.txt"
	python3 bench/gpu_clocks.py >"$out/clocks.csv" 2>/dev/null &
	sampler=$!
	# shellcheck disable=SC2064 # the name is gone at the exit
	trap "kill $sampler 2>/dev/null || true" EXIT
	parts
	cp "$work/pruned/costs.jsonl" "$out/costs-pruned.jsonl" 2>/dev/null || true # all that there is, if it was killed
	sed -n 's/^SUMMARY //p' "$work"/*.log >"$work/said.txt" 2>/dev/null || true
	{ provenance && python3 bench/gpu_summary.py page "$work" "$out"; } | tee "$out/summary.txt"
	! grep -qE '	(FAILED|KILLED|NO TIME)' "$work/parts.tsv"
}

# provenance prints command, revision, date and machine of the measurement.
provenance() {
	printf 'command: bench/gpu.sh %s\nrevision: %s\ndate: %s\nclock: wall\n' "$command" "$(cat "$pack/revision")" "$(date -u +%FT%TZ)"
	printf 'gpu: %s\n' "$gpu$(! emulated || echo ': NO GPU, no figure below is one')"
	printf 'cpu: %s, %s cores\n' "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
	printf 'driver: %s\n' "$(PATH=$PATH:/usr/local/nvidia/bin nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)"
	printf 'kernels: %s\n' "$(ours && LC_ALL=C grep -ao 'version [0-9]*; sm_[ -~]*' "$DYNMO_CUDA_LIBRARY" | head -n 1)"
	python3 -c 'import torch; print("pytorch:", torch.__version__, "cuDNN", torch.backends.cudnn.version())' 2>/dev/null || true
}

# missing names what is not here, if anything, and ends the script.
missing() {
	local list=''
	[ -n "$1" ] || list+="
  a GPU whose driver starts (libcuda.so.1, cuInit)"
	[ -f "$archive" ] || list+="
  $archive: bench/gpu.sh prepare makes it on a machine with Go"
	command -v python3 >/dev/null || list+="
  python3"
	[ -z "$list" ] || { say "bench/gpu.sh: missing:$list"; exit 2; }
}

usage() { say 'usage: bench/gpu.sh prepare [REVISION] | all OUT | run OUT PART...'; exit 2; }

case ${1:-} in
prepare)
	[ $# -le 2 ] || usage
	prepare "${@:2}"
	;;
all)
	[ $# = 2 ] || usage
	call "$2" all
	;;
run)
	[ $# -ge 3 ] || usage
	call "${@:2}"
	;;
part)
	out=$3
	ours
	"part_$2"
	;;
*) usage ;;
esac
