#!/usr/bin/env bash
# Validation losses of a trained small LLaMA whose MLPs are cut into 16 experts, by how many
# a token goes to: before any training, and while it trains on, beside the dense model that
# trains on likewise. The first line is of all experts by equal weights, which is the dense
# model. Losses are the same wherever layers lie; one rank has them all here. Needs bin/dynmo
# (./build.sh build), or another as BIN.
#
#   bench/split.sh >results/split.txt
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/split
dynmo=${BIN:-bin/dynmo}
rm -rf "$dir"
mkdir -p "$dir"

# train RUN ARGS trains on one rank, and prints the validation losses.
train() {
	run=$dir/$1
	shift
	"$dynmo" train "$@" --set parallel.stages=1 --set balance.kind=uniform --run-dir "$run" >&2
	sed -n 's/.*"validation_loss":\([0-9.]*\).*/\1/p' "$run/metrics.jsonl" | xargs printf ' %8.4f'
}

# start RUN ARGS prints the loss before any training: of a step too short to change a weight.
start() { train "$@" --set train.steps=1 --set optimizer.lr=1e-30 --set optimizer.min_lr=0; }

on=(--set train.steps=200 --set train.validate_every=25 --set optimizer.lr=1e-3)
train dense jobs/llama.toml --set checkpoint.every=300 >"$dir/dense.txt"
"$dynmo" ckpt export "$dir/dense" -o "$dir/hf" >&2
"$dynmo" ckpt import "$dir/hf" -o "$dir/dense.safetensors"

printf 'command: bench/split.sh\n'
sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$dir/dense/provenance.json"
printf '\njobs/llama.toml, 300 steps, then jobs/moe-split.toml\n%-28s %8s' 'steps on' 0
seq 25 25 200 | xargs printf ' %8d'
printf '\n%-28s' dense
cat "$dir/dense.txt"
train on jobs/llama.toml --set model.weights="$dir/dense.safetensors" "${on[@]}"
for how in '16 --deviation 0' 16 8 4 2 '4 --router mlp' '4 --in-order' '4 --scale 4'; do
	set -- $how
	name="top $how"
	sets=(--set moe.top="$1" --set model.weights="$dir/experts.safetensors")
	[ "${2:-}" != --router ] || sets+=(--set moe.router="$3")
	[ "${2:-}" != --scale ] || sets+=(--set moe.scale="$3")
	"$dynmo" ckpt split "$dir/dense" -o "$dir/experts.safetensors" --force --experts 16 --top "$@"
	printf '\n%-28s' "$name"
	start "start-${how// /}" jobs/moe-split.toml "${sets[@]}"
	train "on-${how// /}" jobs/moe-split.toml "${sets[@]}" "${on[@]}"
done
printf '\n'
