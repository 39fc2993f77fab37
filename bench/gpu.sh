#!/usr/bin/env bash
# All that needs a GPU, in two calls of under ten minutes each. The first builds the
# kernels where there is nvcc, else takes those of the pack, checks them (conformance at real widths, memory) and times them; the second times
# training steps and PyTorch beside them, and checks what is left. Either may be the only one.
#
#   bench/gpu.sh prepare     on a machine with Go, nvcc and Open MPI: build/gpu/pack.tar.gz,
#                            all that is made of Go, the kernels for ARCHS (80 90), and the
#                            libraries that they need
#   bench/gpu.sh first OUT
#   bench/gpu.sh second OUT  on a machine with a GPU and python3, and nvcc or the Python
#                            packages of cuBLASLt and cuSPARSE: the repository with that file
#   bench/gpu.sh run OUT PART...
#                            build and these parts of either call
#
# OUT gets provenance.txt, log.txt (what every part printed), summary.txt (which is printed
# too), and what the parts found: figures.json, operations.json, pytorch*.json, costs-*,
# kernels.txt, clocks.csv. Parts stand in the order of their worth, each with the seconds
# that it may take; what has no time left is said. The status is 0 if no part failed, 1 if
# one did, 2 if something is missing. With the variables of `./build.sh env cuda` and no GPU
# it tries itself out on the emulator.
set -euo pipefail
cd "$(dirname "$0")/.."

pack=$PWD/build/gpu/files
archive=$PWD/build/gpu/pack.tar.gz
seconds=${DYNMO_GPU_SECONDS:-570} # for all parts together
theirs=${LD_LIBRARY_PATH:-}       # without what programs of build/gpu need

source bench/machine.sh
source bench/cuda.sh
source bench/gpu_pack.sh
source bench/gpu_parts.sh

# ours: the environment of the programs in build/gpu. Ranks of one GPU's host are
# more than its cores.
ours() {
	export PATH="$pack/bin:$PATH:/usr/local/nvidia/bin" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$pack/lib:/usr/local/nvidia/lib64"
	export OPAL_PREFIX=$pack OPAL_BINDIR=$pack/bin OPAL_PKGLIBDIR=$pack/openmpi OPAL_PKGDATADIR=$pack/share
	export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
	export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm=isolated
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_pcompress_base_silence_warning=1
	export PRTE_PREFIX=$pack PMIX_PREFIX=$pack
	if [ -z "${DYNMO_CUDA_LIBRARY:-}" ] && ! toolkit; then # the pack's kernels, over NVIDIA's Python packages
		for library in cublas:libcublasLt.so cusparse:libcusparse.so; do
			library=$(wheel "${library%:*}" "${library#*:}")
			[ -z "$library" ] || LD_LIBRARY_PATH+=":$(dirname "$library")"
		done
		DYNMO_CUDA_LIBRARY=$pack/lib/libdynmo_cuda.so
	fi
	export DYNMO_CUDA_LIBRARY=${DYNMO_CUDA_LIBRARY:-$PWD/lib/libdynmo_cuda.so}
	if [ -z "${DYNMO_NCCL_LIBRARY:-}" ] && [ -n "$(wheel nccl libnccl.so)" ]; then
		export DYNMO_NCCL_LIBRARY=$(wheel nccl libnccl.so)
	fi
}

# wheel PACKAGE FILE: a file (the start of its name) of NVIDIA's Python packages.
wheel() {
	python3 - "$2" <<-'END' 2>/dev/null
		import glob, importlib.util, sys
		found = importlib.util.find_spec("nvidia")
		for root in found.submodule_search_locations if found else ():
		    for path in glob.glob(f"{root}/**/{sys.argv[1]}*", recursive=True)[:1]:
		        print(path)
		        sys.exit()
	END
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

# part NAME LIMIT: runs a part in a process of its own, killed after so many
# seconds, or when the time of all parts is over.
part() {
	local name=$1 limit=$(($2 * slower)) left=$((seconds * slower - SECONDS)) begin status=0 verdict
	case " build $chosen " in *"  "* | *" $name "*) ;; *) return 0 ;; esac
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

# first and second: the parts of a call, what is worth most first. What is timed, or looks
# at how much memory is free, has the machine to itself. The limits of the first, with the
# build, and of the second, without, add up to 570 s: where the second has to build, the
# last parts may have no time.
first() {
	part doctor 10
	part conformance 110
	part kernels 100
	part device 10
	part memcheck_f32 100 &
	part memcheck_bf16 100 &
	wait_parts
	part sparse 90
}
second() {
	part step 45
	part nccl 25
	part operations 100
	part pytorch 130
	part placement 80 &
	part ranks 80 &
	wait_parts
	part graphs 40
	part profile 25
	part pruned 30
	part profiler 35
	part racecheck_f32 60 &
	part racecheck_bf16 60 &
	wait_parts
}

# wait_parts waits for the parts in the background, not for the clocks.
wait_parts() { wait $(jobs -p | grep -vx "$sampler"); }

# call NAME...: the build, then these calls.
call() {
	local name sampler=''
	gpu=$(gpu_name) || gpu=''
	missing "$gpu"
	rm -rf "$pack"
	mkdir -p "$pack"
	tar -C "$pack" -xzf "$archive"
	work=$PWD/build/gpu/run slower=1
	! emulated || slower=10
	rm -rf "$work"
	mkdir -p "$work" "$out"
	: >"$out/log.txt"
	cat src/*/*.go >"$work/corpus.txt"
	python3 bench/gpu_clocks.py >"$out/clocks.csv" 2>/dev/null &
	sampler=$!
	trap "kill $sampler 2>/dev/null || true" EXIT
	part build 150
	for name; do
		"$name"
	done
	cp "$work/pruned/costs.jsonl" "$out/costs-pruned.jsonl" 2>/dev/null || true # all that there is, if it was killed
	provenance "$*" >"$out/provenance.txt"
	{
		cat "$out/provenance.txt"
		python3 bench/gpu_summary.py page "$gpu" "$work/parts.tsv" "$out"
		(cd "$work" && grep -H SUMMARY ./*.log 2>/dev/null) || true
	} | tee "$out/summary.txt"
	! grep -qE '	(FAILED|KILLED|NO TIME)' "$work/parts.tsv"
}

# provenance CALL says what was measured where.
provenance() {
	printf 'command: bench/gpu.sh %s\nrevision: %s\ndate: %s\n' "$1" "$(cat "$pack/revision" 2>/dev/null || echo unknown)" "$(date -u +%FT%TZ)"
	printf 'gpu: %s\ncpu: %s, %s cores\n' "$gpu" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
	printf 'driver: %s\n' "$(PATH=$PATH:/usr/local/nvidia/bin nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)"
	printf 'kernels: %s\n' "$(ours && grep -ao 'version [0-9]*; sm_[ -~]*' "$DYNMO_CUDA_LIBRARY" | head -n 1)"
	python3 -c 'import torch; print("pytorch:", torch.__version__, "cuDNN", torch.backends.cudnn.version())' 2>/dev/null || true
}

# missing says what is not here and ends.
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

usage() { say 'usage: bench/gpu.sh prepare | first OUT | second OUT | run OUT PART...'; exit 2; }

case ${1:-} in
prepare) prepare ;;
first | second)
	[ $# = 2 ] || usage
	mkdir -p "$2"
	out=$(cd "$2" && pwd) chosen=
	call "$1"
	;;
run)
	[ $# -ge 3 ] || usage
	mkdir -p "$2"
	out=$(cd "$2" && pwd) chosen=${*:3}
	call first second
	;;
part)
	out=$3
	ours
	"part_$2"
	;;
*) usage ;;
esac
