#!/usr/bin/env bash
# The demo with a real vocabulary: four MPI ranks train on the source tree of the Go
# toolchain in GPT-2's tokens. Runs have the head whole or in slices, without balancing
# or with it. One table follows, and a verdict for each of the two heads. The command
# ./build.sh demo-bpe builds all programs and sets MPI up.
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
