#!/usr/bin/env bash
# All that needs a GPU, in one call of under ten minutes: builds the kernels,
# checks them, measures them, and compares a training step with PyTorch's.
#
#   bench/gpu.sh prepare     on a machine with Go, nvcc and Open MPI: build/gpu/pack.tar.gz,
#                            all that is made of Go, and the libraries that it needs
#   bench/gpu.sh run OUT [PART...]
#                            on a machine with a GPU, nvcc and python3, which needs
#                            nothing else: the repository with that file. Only build
#                            and the parts that are named, if any are
#
# OUT gets log.txt (what every part printed), summary.txt (which is printed too),
# figures.json, pytorch.json, costs-dense.json and costs-pruned.jsonl. The status is
# 0 if no part failed, 1 if one did, 2 if something is missing. With the variables
# of `./build.sh env cuda` and no GPU, run tries itself out on the emulator.
set -euo pipefail
cd "$(dirname "$0")/.."

pack=$PWD/build/gpu/files
archive=$PWD/build/gpu/pack.tar.gz
seconds=${DYNMO_GPU_SECONDS:-570} # for all parts together
theirs=${LD_LIBRARY_PATH:-}       # without what programs of build/gpu need

source bench/machine.sh
source bench/cuda.sh
source bench/gpu_pack.sh

# ours: the environment of the programs in build/gpu. Ranks of one GPU's host are
# more than its cores.
ours() {
	export PATH="$pack/bin:$PATH:/usr/local/nvidia/bin" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$pack/lib:/usr/local/nvidia/lib64"
	export OPAL_PREFIX=$pack OPAL_BINDIR=$pack/bin OPAL_PKGLIBDIR=$pack/openmpi OPAL_PKGDATADIR=$pack/share
	export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
	export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm=isolated
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_pcompress_base_silence_warning=1
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

# part_NAME: the parts. A part that is not possible here says so and returns 3.

part_build() {
	nvidia-smi || true
	export LD_LIBRARY_PATH=$theirs # the compilers are this machine's
	emulated && { echo "$DYNMO_CUDA_LIBRARY is used"; return 3; }
	toolkit
	toolkit_lacks
	cc=${CC:-gcc} ARCHS=90 JOBS=$(nproc) cuda_library
}

part_doctor() { dynmo doctor; }

# toolkit finds nvcc, behind a link and in the usual place too, and its headers,
# where it says they are if they are not beside it.
toolkit() {
	local program home
	program=$(readlink -f "$(command -v "${NVCC:-nvcc}" || echo /usr/local/cuda/bin/nvcc)")
	find_nvcc || CUDA_HOME=$(dirname "$(dirname "$program")") find_nvcc && return 0
	home=$("$program" --dryrun -c -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p') || return 1
	NVCC=$program CUDA_HOME=$home find_nvcc
}

# toolkit_lacks lets nvcc use the Python packages' headers and libraries where the
# toolkit comes without them.
toolkit_lacks() {
	local name header library
	mkdir -p build/cuda/wheels
	for name in cublasLt cusparse; do
		header=$(find -L "$cuda_home"/include "$cuda_home"/targets/*/include -name "$name.h" -print -quit 2>/dev/null || true)
		[ -n "$header" ] || header=$(wheel "$name" "$name.h")
		[ -z "$header" ] || NVCC_APPEND_FLAGS="${NVCC_APPEND_FLAGS:-} -I$(dirname "$header")"
		find -L "$cuda_home" -name "lib$name.so" -print -quit 2>/dev/null | grep -q . && continue
		library=$(wheel "$name" "lib$name.so")
		[ -z "$library" ] || ln -sf "$library" "build/cuda/wheels/lib$name.so"
		[ -z "$library" ] || NVCC_APPEND_FLAGS+=" -Lbuild/cuda/wheels -Xlinker -rpath,$(dirname "$library")"
	done
	export NVCC_APPEND_FLAGS
}

# tests NAME PACKAGE ARGUMENT...: a test binary, in the folder of its package.
tests() {
	local program=$pack/bin/$1.test folder=src/$2
	shift 2
	(cd "$folder" && "$program" -test.v "$@" | grep --line-buffered -vE '^ *(=== RUN|=== CONT|=== PAUSE|=== NAME|--- PASS: [^ ]*/)')
}

# An error may stay with a process's context and fail all that comes after it: each
# type has a process of its own, and so has each call whose tests failed, again.
part_conformance() {
	local type call status=0
	tests kernel-cuda kernel/cuda -test.skip '^TestConformance$' || status=1
	for type in f32 bf16; do
		tests kernel-cuda kernel/cuda -test.run "^TestConformance\$/^$type\$" | tee "$work/tests.txt" && continue
		status=1
		for call in $(sed -nE 's,^ *--- FAIL: TestConformance/[a-z0-9]+/([A-Za-z]+).*,\1,p' "$work/tests.txt" | sort -u); do
			echo "== $type $call alone"
			tests kernel-cuda kernel/cuda -test.run "^TestConformance\$/^$type\$/^$call\$" || true
		done
	done
	return "$status"
}
part_device() { tests device-cuda device/cuda; }
part_nccl() { tests comm-nccl comm/nccl; }
part_placement() { tests train train -test.run 'GPU|Graph'; }

# What failed is measured again, in a process of its own too.
part_figures() {
	local quick='' name status=0
	! emulated || quick=--quick
	{ dynmo bench gpu --json $quick 2>&1 >&3 | tee "$work/figures.txt"; } 3>"$out/figures.json" || status=$?
	for name in $(sed -n '/ %: /d; s/^dynmo: gpu \([a-z]*\): .*/\1/p' "$work/figures.txt" | sort -u); do
		echo "== $name alone"
		dynmo bench gpu --json --only "$name" $quick >>"$out/figures.json" || true
	done
	return "$status"
}

part_pytorch() {
	export LD_LIBRARY_PATH=$theirs
	python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' || return 3
	emulated && return 3
	python3 bench/gpu_pytorch.py --seconds 140 >"$out/pytorch.json"
}

# settings NAME prints the configuration of a run: the paper's layers, or a model
# that a few ranks train in seconds.
settings() {
	local blocks=24 hidden=1024 heads=32 sequence=2048 vocabulary=50304 corpus=$pack/corpus.bin
	if [ "$1" = small ] || emulated; then
		blocks=4 hidden=64 heads=2 sequence=32 vocabulary=256 corpus=$work/corpus.txt
	fi
	cat <<-END
		[model]
		blocks = $blocks
		hidden = $hidden
		heads = $heads
		sequence = $sequence
		vocab = $vocabulary
		tied = false
		[data]
		path = "$corpus"
		[parallel]
		microbatches = 4
		microbatch_size = 2
		[device]
		kind = "cuda"
		share = true
		[train]
		log_every = 5
		[prune]
		start = 6
		every = 6
		times = 4
		final = 0.95
		[balance]
		every = 2
	END
}

part_profile() {
	settings paper >"$work/paper.toml"
	dynmo profile "$work/paper.toml" -o "$out/costs-dense.json" --force
}

# The costs of the same layers at the sparsities of a run that prunes them.
part_pruned() {
	settings paper >"$work/pruned.toml"
	dynmo train "$work/pruned.toml" --set dynamic.kind=prune --set train.steps=36 --run-dir "$work/pruned"
}

# One, two and four processes that share the GPU, 50 steps with pruning and
# balancing: equal weights at the end.
part_ranks() {
	local ranks precision hash
	settings small >"$work/small.toml"
	for precision in f32 bf16; do
		hash=''
		for ranks in 1 2 4; do
			mpirun -np "$ranks" dynmo train "$work/small.toml" --set dynamic.kind=prune --set train.steps=50 \
				--set train.hash=true --set "parallel.stages=$ranks" --set balance.kind=diffusion \
				--set "device.precision=$precision" --no-run-dir | tee "$work/ranks.txt"
			hash+=" $(sed -n 's/.*weights \([0-9a-f]*\).*/\1/p' "$work/ranks.txt")"
		done
		if [ "$(xargs -n 1 <<<"$hash" | sort | uniq -c | awk '{print $1}')" != 3 ]; then
			echo "$precision: other weights:$hash"
			return 1
		fi
		echo "$precision: the same weights on 1, 2 and 4 ranks:$hash"
	done
}

# sanitized TOOL TYPE: the kernels of a type under a tool of compute-sanitizer.
sanitized() {
	local sanitizer
	emulated && { echo 'the emulator has no compute-sanitizer'; return 3; }
	sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer) || return 3
	(cd src/kernel/cuda && "$sanitizer" --tool "$1" --error-exitcode 9 --print-limit 20 "$pack/bin/kernel-cuda.test" \
		-test.v -test.run "^TestConformance\$/^$2\$/$3")
}

# racecheck follows every access to shared memory, so it sees the kernels that use it.
shared_memory='^(LayerNorm|Attention|SoftmaxMerge|CrossEntropy|SumSquares|SpMM|SDDMM|MatmulBackwardWeight|Magnitude)'
part_memcheck_f32() { sanitized memcheck f32 .; }
part_memcheck_bf16() { sanitized memcheck bf16 .; }
part_racecheck_f32() { sanitized racecheck f32 "$shared_memory"; }
part_racecheck_bf16() { sanitized racecheck bf16 "$shared_memory"; }

# part NAME LIMIT: runs a part in a process of its own, killed after so many
# seconds, or when the time of all parts is over.
part() {
	local name=$1 limit=$(($2 * slower)) left=$((seconds * slower - SECONDS)) start=$SECONDS status=0 verdict
	case " build $chosen " in *"  "* | *" $name "*) ;; *) return 0 ;; esac
	[ "$limit" -le "$left" ] || limit=$left
	say "== $name, at $SECONDS s"
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
	printf '%s\t%s\t%s\n' "$name" "$verdict" "$((SECONDS - start))" >>"$work/parts.tsv"
	{ printf '\n==== %s\n' "$name" && tail -c 1000000 "$work/$name.log" 2>/dev/null; } >>"$out/log.txt" || true
}

# run_all begins with what everything needs, then what is worth most. What is timed,
# or looks at how much memory is free, has the machine to itself.
run_all() {
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
	part build 240
	part doctor 20
	part conformance 90
	part figures 170
	part pytorch 150
	part profile 60
	part pruned 60
	part nccl 40
	part device 40
	part placement 150 &
	part ranks 150 &
	part memcheck_f32 220 &
	part memcheck_bf16 220 &
	part racecheck_f32 220 &
	part racecheck_bf16 220 &
	wait
	cp "$work/pruned/costs.jsonl" "$out/costs-pruned.jsonl" 2>/dev/null || true # all that there is, if it was killed
	{
		summary
		(cd "$work" && grep -H SUMMARY ./*check_*.log 2>/dev/null) || true
	} | tee "$out/summary.txt"
	! grep -qE '	(FAILED|KILLED|NO TIME)' "$work/parts.tsv"
}

# missing says what is not here and ends.
missing() {
	local list=''
	[ -n "$1" ] || list+="
  a GPU whose driver starts (libcuda.so.1, cuInit)"
	[ -f "$archive" ] || list+="
  $archive: bench/gpu.sh prepare makes it on a machine with Go"
	emulated || toolkit || list+="
  nvcc and its headers: set CUDA_HOME"
	command -v python3 >/dev/null || list+="
  python3"
	[ -z "$list" ] || { say "bench/gpu.sh run: missing:$list"; exit 2; }
}

# summary prints one page: the parts, and the figures that matter.
summary() {
	python3 - "$gpu" "$work/parts.tsv" "$out/figures.json" "$out/pytorch.json" <<-'END'
		import json, os, sys

		def figures(path):
		    if not os.path.exists(path):
		        return {}
		    lines = [json.loads(line) for line in open(path) if line.startswith("{")]
		    return {f["name"].removeprefix("emulated/").split("/", 1)[1]: f for f in lines}

		def value(f):
		    return "INVALID" if f["wrong"] else f'{f["value"]:.4g}'

		print(sys.argv[1] + (": NO GPU, no figure below is one" if "emulated" in sys.argv[1] else ""))
		for line in open(sys.argv[2]):
		    name, verdict, seconds = line.rstrip("\n").split("\t")
		    print(f"{name:16}{verdict:24}{seconds:>5} s")
		ours, theirs = figures(sys.argv[3]), figures(sys.argv[4])
		print(f"\n{len(ours)} figures, {sum(f['wrong'] > 0 for f in ours.values())} invalid; "
		      f"short of what they should reach: "
		      + (", ".join(n + " " + value(f) for n, f in ours.items() if not f["ok"]) or "none"))
		for name, f in ours.items():
		    if f.get("reach") or not name.startswith(("spmm", "sddmm", "embedding", "gelu")) or "crossing" in name:
		        reach = f' (reach {f["reach"]:g})' if f.get("reach") else ""
		        print(f'  {name:36}{value(f):>10} {f["unit"]}{reach}')
		for kind in "f32", "bf16":
		    percents = [n.rsplit("_", 1)[1] for n in ours if n.startswith(f"spmm_forward_{kind}_")]
		    for what in "spmm_forward", "spmm_backward_input", "sddmm", "spmm_cusparse", "spmm_dense":
		        row = [value(ours[f"{what}_{kind}_{p}"]) if f"{what}_{kind}_{p}" in ours else "-" for p in percents]
		        print(f"  {what + ' ' + kind + ' ms':28}" + "".join(f"{p + '%: ' + x:>14}" for p, x in zip(percents, row)))
		for name, f in theirs.items():
		    print(f'  pytorch {name:36}{value(f):>10} {f["unit"]}')
		mine, other = ours.get("step_tokens_per_second"), theirs.get("step_tokens_per_second")
		if mine and other and other["value"]:
		    print(f'  step, tokens/s over PyTorch\'s best: {mine["value"] / other["value"]:.3f} (reach 1)')
	END
}

case ${1:-} in
prepare) prepare ;;
run)
	[ $# -ge 2 ] || { say 'usage: bench/gpu.sh run OUT [PART...]'; exit 2; }
	mkdir -p "$2"
	out=$(cd "$2" && pwd) chosen=${*:3}
	run_all
	;;
part)
	out=$3
	ours
	"part_$2"
	;;
*) say 'usage: bench/gpu.sh prepare | run OUT [PART...]'; exit 2 ;;
esac
