#!/usr/bin/env bash
# Plans on 720 H100 and 720 A100, with the networks of their nodes. Models are GPTs of 24,
# 32, 40 and 48 layers of the paper's size, Mixtral 8x7B and LLaMA-MoE 3.5B. Costs are
# estimated (dynmo profile --estimate), so no GPU is needed. Meshes are 24 stages x 30
# replicas and 8 x 90; an eighth of Mixtral does not fit. Needs bin/dynmo (./build.sh
# build), or another program as BIN.
#
#   bench/plan-estimated.sh >results/plan-estimated.txt
set -euo pipefail
cd "$(dirname "$0")/.."

dynmo="${BIN:-bin/dynmo}"
costs=$(mktemp)
trap 'rm -f "$costs"' EXIT

printf 'command: bench/plan-estimated.sh\nrevision: %s\ndate: %s\n' "$(git rev-parse --short HEAD)" "$(date -u +%F)"
printf 'costs: estimated by a roofline of published rates, not measured; clock=sim\n'
printf 'models: jobs/gpu-24l.toml, hidden 1024, head in 16 slices; jobs/paper/mixtral-8x7b.toml and llama-moe-3.5b.toml\n'
printf 'sequence 2048, bf16; 96 microbatches of 1 sequence a replica; memory is of the stage that needs most, of mixtral 75 GB at most\n\n'
printf '%-5s %-9s %5s %11s %11s %10s %12s %10s %12s %10s\n' gpu model mesh block step tokens/s 'bubble ratio' model-FLOP/s 'of the rate' memory

# rows GPU NAME JOB MESHES SETTING... prints a row of a model on each mesh.
rows() {
	local gpu=$1 name=$2 job=$3 meshes=$4 mesh stages replicas
	shift 4
	"$dynmo" profile "$job" "$@" --estimate "$gpu" -o "$costs" --force
	for mesh in $meshes; do
		IFS=x read -r stages replicas <<<"$mesh"
		"$dynmo" plan "$job" "$@" --costs "$costs" --network "$gpu" --json \
			--set "parallel.stages=$stages" --set "parallel.replicas=$replicas" --set parallel.microbatches=96 |
			python3 -c '
import json, sys
gpu, name, mesh, costs = sys.argv[1:]
plan = json.load(sys.stdin)
block = [l for l in json.load(open(costs))["layers"] if l["name"].startswith("block.0")]
layer = sum(l["forward"] + l["backward_input"] + l["backward_weight"] for l in block)
tokens = 2048 * 96 * int(mesh.split("x")[1]) / plan["step_seconds"]
rate = plan["step_flops"] / plan["step_seconds"] / 720
peak = {"h100": 989.4e12, "a100": 312e12}[gpu]
memory = max(s["bytes"] for s in plan["stages"])
print("%-5s %-9s %5s %8.0f us %8.1f ms %10.3g %12.3f %8.0f T %12.2f %7.1f GB" % (gpu, name, mesh, layer * 1e6,
      plan["step_seconds"] * 1e3, tokens, plan["bubble_ratio"], rate / 1e12, rate / peak, memory / 1e9))' "$gpu" "$name" "$mesh" "$costs"
	done
}

for gpu in h100 a100; do
	for blocks in 24 32 40 48; do
		rows "$gpu" "gpt-$blocks" jobs/gpu-24l.toml '24x30 8x90' --set "model.blocks=$blocks" --set model.head_shards=16 \
			--set parallel.microbatch_size=1
	done
	rows "$gpu" mixtral jobs/paper/mixtral-8x7b.toml 24x30 --set balance.memory_limit_bytes=75000000000
	rows "$gpu" llama-moe jobs/paper/llama-moe-3.5b.toml '24x30 8x90'
done
