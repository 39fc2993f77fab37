# The parts of gpu.sh. Sourced by it, in the root of the repository.

# part_NAME: the parts. A part that is not possible here says so and returns 3.

part_build() {
	nvidia-smi || true
	export LD_LIBRARY_PATH=$theirs # the compilers are this machine's
	emulated && { echo "$DYNMO_CUDA_LIBRARY is used"; return 3; }
	toolkit || { echo 'no nvcc: the kernels of the pack are used'; return 3; }
	toolkit_lacks
	rm -f lib/libdynmo_cuda.so # without it the kernels of the pack are used
	cc=${CC:-gcc} ARCHS=90 JOBS=$(nproc) cuda_library
}

part_doctor() { dynmo doctor; }

# toolkit finds nvcc, also behind a link and in the usual place, and the headers of its
# toolkit. Where no headers are beside nvcc, nvcc itself names their place.
toolkit() {
	local program home
	program=$(readlink -f "$(command -v "${NVCC:-nvcc}" || echo /usr/local/cuda/bin/nvcc)")
	find_nvcc || CUDA_HOME=$(dirname "$(dirname "$program")") find_nvcc && return 0
	home=$("$program" --dryrun -c -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p') || return 1
	NVCC=$program CUDA_HOME=$home find_nvcc
}

# toolkit_lacks lets nvcc use the Python packages' headers where the toolkit comes without them.
toolkit_lacks() {
	local name header
	for name in cublasLt cusparse; do
		find -L "$cuda_home"/include "$cuda_home"/targets/*/include -name "$name.h" -print -quit 2>/dev/null | grep -q . && continue
		header=$(wheel "$name.h")
		[ -z "$header" ] || NVCC_APPEND_FLAGS="${NVCC_APPEND_FLAGS:-} -I${header%/*}"
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
part_pruning() { tests kind-prune kind/prune -test.run GPU; }

# figures FILE PART...: runs parts of dynmo bench gpu. A part that failed is measured again, in a
# process of its own too.
figures() {
	local quick='' name status=0 file=$out/$1
	shift
	! emulated || quick=--quick
	{ dynmo bench gpu --json --only "$(IFS=, && echo "$*")" $quick 2>&1 >&3 | tee "$work/figures.txt"; } 3>>"$file" || status=$?
	for name in $(sed -n '/ %: /d; s/^dynmo: gpu \([a-z]*\): .*/\1/p' "$work/figures.txt" | sort -u); do
		echo "== $name alone"
		dynmo bench gpu --json --only "$name" $quick >>"$file" || true
	done
	return "$status"
}

# The administrator's bench on one rank: its text, JSON, page and verdict of one measurement.
part_node() {
	local small='' folder=$work/node
	! emulated || small=--small
	mpirun --bind-to none -np 1 dynmo bench node $small --records "$folder" --page "$out/node.html" --prometheus "$out/node.prom" \
		--write-reference "$out/node.toml" --force | tee "$out/node.txt"
	dynmo bench node --judge "$folder" --reference "$out/node.toml" --json >"$out/node.json"
	mpirun --bind-to none -np 1 dynmo bench node $small --burn 5s --json --seconds 0.5 >"$out/node-burn.json"
	time dynmo bench node --quick $small
}

part_sparse() { figures figures.json spmm; }
part_step() { figures figures.json step; }

# has_torch: whether there is PyTorch to compare with.
has_torch() { ! emulated && (export LD_LIBRARY_PATH=$theirs && python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'); }

operations='attention layernorm crossentropy adamw gelu embedding llama experts'

# Operations of ours, and then of PyTorch's, on one machine.
part_operations() {
	# shellcheck disable=SC2086
	figures figures.json products $operations
	has_torch || return 3
	LD_LIBRARY_PATH=$theirs python3 bench/gpu_pytorch_operations.py "$out/figures.json" --seconds 25 >"$out/pytorch-operations.json"
}

# The same operations by the kernels of the revision that `prepare` was given. Files that
# have not changed since are not compiled again.
part_before() {
	local folder=$work/before
	[ -d "$pack/before" ] || { echo 'the pack has the kernels of one revision: bench/gpu.sh prepare REVISION adds those of another'; return 3; }
	toolkit || { echo 'no nvcc: it compiles the other kernels'; return 3; }
	toolkit_lacks
	cp -r "$pack/before" "$folder"
	if emulated; then
		CUDA_HOME=$cuda_home "$folder/csrc/emulate/build.sh" "$folder/lib"
	else
		mkdir "$folder/build"
		cp -r build/cuda "$folder/build/"
		(cd "$folder" && export LD_LIBRARY_PATH=$theirs && cc=${CC:-gcc} ARCHS=90 JOBS=$(nproc) cuda_library)
	fi
	# shellcheck disable=SC2086
	DYNMO_CUDA_LIBRARY=$folder/lib/libdynmo_cuda.so figures figures-before.json $operations
}

part_pytorch() {
	has_torch || return 3
	LD_LIBRARY_PATH=$theirs python3 bench/gpu_pytorch.py --seconds 120 >"$out/pytorch.json"
}

# Steps by default, without graphs, and with kernels that are loaded at their first call.
part_graphs() {
	local name graphs loading
	settings paper >"$work/graphs.toml"
	while read -r name graphs loading; do
		CUDA_MODULE_LOADING=$loading dynmo train "$work/graphs.toml" --set train.steps=12 --set "device.graphs=$graphs" \
			--run-dir "$work/graphs-$name" --force
		python3 bench/gpu_summary.py steps "$work/graphs-$name" "step, device.graphs=$graphs, loading $loading"
	done <<-'END'
		usual true EAGER
		ungraphed false EAGER
		lazy true LAZY
	END
}

# Time by kernel of two small steps, by Nsight Compute, which leaves clocks alone here. The
# profiler loses a program without C that becomes another, so dynmo-cuda starts directly.
part_profiler() {
	local ncu
	emulated && return 3
	ncu=$(command -v ncu || ls /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | head -n 1)
	[ -n "$ncu" ] || { echo 'no Nsight Compute (ncu)'; return 3; }
	settings paper >"$work/profiler.toml"
	CUDA_MODULE_LOADING=EAGER "$ncu" --clock-control none --metrics gpu__time_duration.sum --csv --target-processes all \
		--launch-count 4000 --log-file "$work/ncu.csv" "$pack/bin/dynmo-cuda" train "$work/profiler.toml" \
		--set model.blocks=4 --set device.graphs=false --set device.tune=false --set train.steps=2 \
		--set parallel.microbatches=2 --no-run-dir || echo "ncu: status $?"
	python3 bench/gpu_summary.py kernels "$work/ncu.csv" | tee "$out/kernels.txt"
}

# settings NAME prints the configuration of a run: the paper's layers, or a model
# that a few ranks train in seconds.
settings() {
	local blocks=24 hidden=1024 heads=16 sequence=2048 vocabulary=50304 corpus=$pack/corpus.bin
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
		[checkpoint]
		every = "never"
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

# One, two and four processes share the GPU, for 50 steps with pruning and balancing. All
# have equal weights at the end. So do two replicas of two stages, with moments and masters
# shared out and without.
part_ranks() {
	local shape precision hashes status=0
	settings small >"$work/small.toml"
	for precision in f32 bf16; do
		hashes=''
		for shape in 1x1 2x1 4x1; do hashes+=" $(trained "$shape" --set dynamic.kind=prune)"; done
		equal "$precision, 1, 2 and 4 stages" "$hashes" || status=1
		hashes=''
		for shard in false true; do hashes+=" $(trained 2x2 --set "optimizer.shard=$shard")"; done
		equal "$precision, 2 x 2, optimizer.shard = false and true" "$hashes" || status=1
	done
	return "$status"
}

# What blocks compute twice changes no weight. Attention in hash buckets and matrices in CSR
# have equal weights on one stage and on two, between which layers move.
part_bits() {
	local precision what hashes status=0
	settings small >"$work/small.toml"
	for precision in f32 bf16; do
		hashes=''
		for what in none attention block; do hashes+=" $(trained 1x1 --set "model.recompute=$what")"; done
		equal "$precision, model.recompute = none, attention and block" "$hashes" || status=1
		equal "$precision, model.recompute = block, 1 and 2 stages" " ${hashes##* } $(trained 2x1 --set model.recompute=block)" || status=1
		hashes=''
		for what in 1x1 2x1; do hashes+=" $(trained "$what" --set dynamic.kind=attention --set attention.buckets=4)"; done
		equal "$precision, attention in 4 hash buckets, 1 and 2 stages" "$hashes" || status=1
		hashes=''
		for what in 1x1 2x1; do hashes+=" $(trained "$what" --set dynamic.kind=prune --set prune.csr_from=0.5)"; done
		equal "$precision, CSR from 50 % zeros, 1 and 2 stages" "$hashes" || status=1
	done
	return "$status"
}

# trained STAGESxREPLICAS ARGUMENT... prints the hash of the weights after 50 steps.
trained() {
	local stages=${1%x*} replicas=${1#*x}
	mpirun -np $((stages * replicas)) dynmo train "$work/small.toml" --set train.steps=50 --set train.hash=true \
		--set "parallel.stages=$stages" --set "parallel.replicas=$replicas" --set balance.kind=diffusion \
		--set "device.precision=$precision" --set device.tune=false --no-run-dir "${@:2}" >"$work/ranks.txt" || cat "$work/ranks.txt" >&2
	sed -n 's/.*weights \([0-9a-f]*\).*/\1/p' "$work/ranks.txt"
}

# equal WHAT HASHES fails unless all runs ended and have one hash.
equal() {
	case $2 in *'  '* | *' ') echo "$1: a run failed:$2"; return 1 ;; esac
	if [ "$(xargs -n 1 <<<"$2" | sort -u | wc -l)" != 1 ]; then
		echo "$1: other weights:$2"
		return 1
	fi
	echo "$1: the same weights:$2"
}

# sanitized TOOL TYPE CALLS: these calls' small cases under a tool of compute-sanitizer.
sanitized() {
	local sanitizer
	emulated && { echo 'the emulator has no compute-sanitizer'; return 3; }
	sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer) || return 3
	(cd src/kernel/cuda && "$sanitizer" --tool "$1" --error-exitcode 9 --print-limit 20 "$pack/bin/kernel-cuda.test" \
		-test.v -test.short -test.run "^TestConformance\$/^$2\$/$3")
}

# Builds kernels for racecheck. The tool counts a lane's work as done only when the lane itself
# has arrived at a barrier. In these kernels all lanes arrive.
part_lanes() {
	toolkit || { echo 'no nvcc: racecheck wants kernels compiled for it'; return 3; }
	toolkit_lacks
	cp lib/libdynmo_cuda.so "$work/as_built.so"
	cc=${CC:-gcc} ARCHS=90 JOBS=$(nproc) NVCCFLAGS=-DDYNMO_LANES_ARRIVE cuda_library
	mv lib/libdynmo_cuda.so "$work/lanes.so"
	mv "$work/as_built.so" lib/libdynmo_cuda.so
}

# racecheck follows every access to shared memory, so it sees the kernels that use it.
shared_memory='^(Embedding|LayerNorm|Attention|SoftmaxMerge|CrossEntropy|SumSquares|SpMM|SDDMM|MatmulBackwardWeight|Magnitude)'
# memcheck takes minutes for all calls: these compute addresses in the most ways.
many_addresses='^(Embedding|Attention|SparseAttention|SpMM)'
part_memcheck_f32() { sanitized memcheck f32 "$many_addresses"; }
part_memcheck_bf16() { sanitized memcheck bf16 "$many_addresses"; }
raced() {
	[ -f "$work/lanes.so" ] || return 3
	DYNMO_CUDA_LIBRARY=$work/lanes.so sanitized racecheck "$1" "$shared_memory"
}
part_racecheck_f32() { raced f32; }
part_racecheck_bf16() { raced bf16; }

