#!/usr/bin/env bash
# Tests whether the conformance suite sees a missing barrier: bench/mutate.sh [PATTERN]
#
# Takes every barrier and every wait for asynchronous work out of csrc/cuda, one at a time.
# PATTERN chooses files by name. Each time it builds the kernels for the emulator, and runs
# the cases of the file's operations in three orders of threads. Prints file, line, kind and
# the failing case to stderr, and counts by file to stdout. Fails if no case fails for some
# barrier, unless the barrier's comment says why no order of threads shows it.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds='__syncthreads|__syncwarp|cp_async_wait<[^>]*>|barrier_wait|products_wait<[^>]*>|threads_meet|floats_read|floats_written'

# operations SOURCE prints a pattern of the operations of a file of kernels: none for files of
# Hopper's attention, which has a test of its own.
operations() {
	case $1 in
	*_hopper) ;;
	attention_hash) echo 'AttentionHash|OneBucket' ;;
	attention_sparse) echo 'SparseAttention|OneBucket' ;;
	attention*) echo 'Attention(Forward|Backward)|Sequences|SharedKeys' ;;
	columns | gemm | gemm_plain) echo 'Matmul' ;;
	compact | structure) echo 'Compact|Mask|Select|Scores' ;;
	grouped*) echo 'Grouped' ;;
	depth) echo 'TakeTokens|ListTokens' ;;
	route) echo 'Route|Place' ;;
	scores) echo 'Squash|Balance' ;;
	combine) echo 'Combine' ;;
	embedding) echo 'Embedding' ;;
	gated) echo 'SwiGLU|Rotary' ;;
	gather) echo 'GatherRows|ScatterRows|GateGradient' ;;
	layernorm) echo 'LayerNorm' ;;
	magnitude) echo 'Magnitude' ;;
	optimizer) echo 'SumSquares|AdamW|Mask' ;;
	rmsnorm) echo 'RMSNorm' ;;
	softmax) echo 'Softmax|CrossEntropy' ;;
	blocks* | sparse*) echo 'SpMM|SDDMM' ;;
	*) echo . ;;
	esac
}

# sources FILE prints the files of kernels that a file is part of.
sources() {
	grep -lE "[ /]${1//./\\.}( |\$)" "$work"/whole/emulator/*.cu.o.d | xargs -n 1 basename | sed 's/\.cu\.o\.d$//'
}

# verdict FILE LINE KIND tests the kernels without one barrier and prints a row.
verdict() {
	local file=$1 line=$2 kind=$3 pattern source caught why
	rm -rf "$work/csrc" "$work/emulator"
	cp -a "$work/whole/csrc" "$work/whole/emulator" "$work"
	why=$(sed -nE "${line}s|.*/\* (.*no order of threads shows.*) \*/.*|\1|p" "$work/csrc/cuda/$file")
	sed -i -E "${line}s/($kinds)\([^;]*\);/;/" "$work/csrc/cuda/$file"
	"$work/csrc/emulate/build.sh" "$work/emulator" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
	pattern="TestConformance/.*/($(for source in $(sources "$file"); do operations "$source"; done | sort -u | paste -sd '|'))"
	[[ $file != *hopper* ]] || pattern=TestHopperAttention
	if DYNMO_CUDA_LIBRARY=$work/emulator/libdynmo_cuda.so LD_LIBRARY_PATH=$work/emulator \
		"$work/test" -test.run "$pattern" -test.failfast -test.timeout 5m &>"$work/log"; then
		caught=${why:+no: $why}
		[ -n "$why" ] || missed=$((missed + 1))
		caught=${caught:-MISSED}
	else
		caught=$(grep -m 1 -oE '^ *--- FAIL: [A-Za-z]+/[^ ]*=[^ ]+|dynmo emulator: .*|panic: test timed out.*' "$work/log" |
			sed -E 's/.*FAIL: Test(Conformance.)?//; s/dynmo emulator: kernel [^:]*: //' || true)
		caught=${caught:-$(tail -n 1 "$work/log")}
	fi
	printf '%-24s %4d  %-20s %s\n' "$file" "$line" "$kind" "$caught" | tee -a "$work/rows" >&2
}

# summary prints for every file the number of barriers that a case notices, that a check of the
# emulator notices, and that neither notices; then the rows of the barriers not noticed.
summary() {
	awk '{ n[$1]++; $4 ~ /^(no:|MISSED)/ ? missed[$1]++ : $0 ~ /=/ ? cases[$1]++ : checks[$1]++ }
		END { for (f in n) printf "%-28s %8d  %7d  %8d  %8d\n", f, n[f], cases[f], checks[f], missed[f] }' "$work/rows" | sort |
		awk 'BEGIN { printf "%-28s %8s  %7s  %8s  %8s\n", "file", "barriers", "by case", "by check", "not seen" }
			{ print; for (i = 2; i <= 5; i++) sum[i] += $i } END { printf "%-28s %8d  %7d  %8d  %8d\n", "all", sum[2], sum[3], sum[4], sum[5] }'
	echo
	grep -E '  (no: |MISSED)' "$work/rows" || true
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0
eval "$(./build.sh env cuda)"
mkdir "$work/whole"
cp -a csrc build/emulator "$work/whole"
go test -c -vet=off -tags "$TAGS" -o "$work/test" ./src/kernel/cuda
while IFS=: read -r file line code; do
	file=${file##*/}
	[[ $file =~ ${1:-} ]] || continue
	verdict "$file" "$line" "$(grep -oE "$kinds" <<<"$code" | head -n 1)"
done < <(grep -nE "($kinds)\([^;]*\);" "$work"/whole/csrc/cuda/*.cu "$work"/whole/csrc/cuda/*.cuh)
summary
[ "$missed" = 0 ] || { echo "$missed barriers are missed by no case" >&2; exit 1; }
