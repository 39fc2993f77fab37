#!/usr/bin/env bash
# The demo with a real vocabulary: the source tree of the Go toolchain in GPT-2's
# tokens, four MPI ranks, the head whole and in slices, without balancing and with it,
# then one table, and a verdict for each of the two heads. ./build.sh demo-bpe builds
# what this needs and sets MPI up for it.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=build/bpe
rm -rf "$runs"
mkdir -p "$runs"
bin/dynmo data prepare --tokenizer gpt2 --extensions .go -o "$runs/go.bin" "$(go env GOROOT)/src"
list=()
for slices in 1 16; do
	for kind in uniform partition diffusion; do
		run=$runs/$slices-$kind
		name="head in $slices"
		list+=("$run")
		printf '\n== jobs/bpe-4x1.toml, model.head_shards = %s, balance.kind = %s\n' "$slices" "$kind"
		mpirun -np 4 bin/dynmo train jobs/bpe-4x1.toml --set "model.head_shards=$slices" --set "balance.kind=$kind" \
			--set "run.name=$name" --run-dir "$run"
	done
done
printf '\n'
bin/dynmo table "${list[@]}"
