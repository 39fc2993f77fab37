#!/usr/bin/env bash
# Plans of GPTs of 24, 32, 40 and 48 layers of the paper's size on 720 H100 and A100, on
# costs that are estimated (dynmo profile --estimate), with the networks of
# jobs/cluster-*.toml: 24 stages x 30 replicas and 8 x 90. No GPU is needed. Needs
# bin/dynmo (./build.sh build), or another as BIN.
#
#   bench/plan-estimated.sh >results/plan-estimated.txt
set -euo pipefail
cd "$(dirname "$0")/.."

dynmo="${BIN:-bin/dynmo}"
costs=$(mktemp)
trap 'rm -f "$costs"' EXIT

printf 'command: bench/plan-estimated.sh\nrevision: %s\ndate: %s\n' "$(git rev-parse --short HEAD)" "$(date -u +%F)"
printf 'costs: estimated by a roofline of published rates, not measured; clock=sim\n'
printf 'model: jobs/gpu-24l.toml, hidden 1024, sequence 2048, bf16, head in 16 slices; 96 microbatches of 1 sequence a replica\n\n'
printf '%-5s %6s %7s  %10s %11s %10s %12s %8s  %s\n' gpu layers mesh layer step tokens/s 'bubble ratio' model-FLOP/s 'of the rate'
for gpu in h100 a100; do
	for blocks in 24 32 40 48; do
		model=(--set "model.blocks=$blocks" --set model.head_shards=16 --set parallel.microbatch_size=1)
		"$dynmo" profile jobs/gpu-24l.toml "${model[@]}" --estimate "$gpu" -o "$costs" --force
		for mesh in '24 30' '8 90'; do
			read -r stages replicas <<<"$mesh"
			"$dynmo" plan jobs/gpu-24l.toml "${model[@]}" --costs "$costs" --network "jobs/cluster-$gpu.toml" --json \
				--set "parallel.stages=$stages" --set "parallel.replicas=$replicas" --set parallel.microbatches=96 |
				python3 -c '
import json, sys
gpu, blocks, stages, replicas, costs = sys.argv[1:]
plan = json.load(sys.stdin)
block = next(l for l in json.load(open(costs))["layers"] if l["name"] == "block.0")
layer = block["forward"] + block["backward_input"] + block["backward_weight"]
tokens = 2048 * 96 * int(replicas) / plan["step_seconds"]
rate = plan["step_flops"] / plan["step_seconds"] / 720
peak = {"h100": 989.4e12, "a100": 312e12}[gpu]
print("%-5s %6s %7s  %7.0f us %8.1f ms %10.3g %12.3f %8.0f T  %.2f" % (gpu, blocks, f"{stages}x{replicas}",
      layer * 1e6, plan["step_seconds"] * 1e3, tokens, plan["bubble_ratio"], rate / 1e12, rate / peak))' "$gpu" "$blocks" "$stages" "$replicas" "$costs"
		done
	done
done
