#!/usr/bin/env bash
# The best step on 720 H100: over every mesh with 4 microbatches a stage, the step of the best
# mesh over its work, shared evenly. The last column is the step with optimizer.shard = true over
# the step without. Costs are estimated (bf16, flash attention) for GPTs of 24 and 48 blocks of
# hidden 1024. Models that have changed are the dense costs, scaled:
# frozen: the first half of the blocks has no backward; exits: half of the tokens leave in each
# eighth of the depth; pruned: products take 0.4 of their time (CSR at 90 %), attention all of it.
# Depths are estimated as they are (mod.capacity 0.125). Needs bin/dynmo, or another as BIN, and jq.
#
#   bench/best-step.sh >results/best-step.txt
set -euo pipefail
cd "$(dirname "$0")/.."
dynmo=${BIN:-bin/dynmo}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

share=0.857 # of a block's operations are in products: 12·C of 12·C + T, with C = 1024, T = 2048
# scaled has a filter of jq for each model: it scales the passes of the layers of a cost table.
declare -A scaled=(
	[dense]='.'
	[frozen]='.layers |= [to_entries[] | if .key <= $blocks/2 then .value.backward_input = 0 | .value.backward_weight = 0 else . end | .value]'
	[exits]='.layers |= [to_entries[] | (if .key == 0 then 1 elif .key > $blocks then pow(0.5; 7) else pow(0.5; ((.key - 1) * 8 / $blocks) | floor) end) as $f | .value | .forward *= $f | .backward_input *= $f | .backward_weight *= $f]'
	[pruned]='.layers |= [to_entries[] | (if .key >= 1 and .key <= $blocks then 1 - $share + 0.4 * $share else 1 end) as $f | .value | .forward *= $f | .backward_input *= $f | .backward_weight *= $f]'
	[depths]='.'
)

printf 'command: bench/best-step.sh\nrevision: %s\ndate: %s\n' "$("$dynmo" version | awk 'NR == 1 { print $2 }')" "$(date -u +%F)"
printf 'clock: sim, on costs estimated for h100; 2 sequences of 2048 tokens a microbatch, 5760 in a step\n'
printf 'note: comm.sum = bfloat16, comm.sum_group = 4, model.head_shards = 16, 80e9 bytes a GPU; networks of H100 nodes as assumed for estimates\n\n'
printf '%-8s %6s %-5s %8s %6s %-12s %-6s %8s %8s %10s\n' model blocks shard mesh M schedule grain 'step, ms' 'to work' 'to without'
for model in dense pruned frozen exits depths; do
	for blocks in 24 48; do
		set -- --set model.blocks=$blocks --set parallel.microbatch_size=2 --set model.head_shards=16 --set parallel.replicas=90
		[ $model != depths ] || set -- "$@" --set dynamic.kind=mod
		"$dynmo" profile jobs/gpu-24l.toml "$@" --estimate h100 -o "$work/$model-$blocks.json" >/dev/null
		jq --argjson blocks $blocks --argjson share $share "${scaled[$model]}" "$work/$model-$blocks.json" >"$work/costs.json"
		for shard in false true; do
			"$dynmo" plan jobs/gpu-24l.toml "$@" --costs "$work/costs.json" --meshes --gpus 720 --batch 5760 --json --set optimizer.shard=$shard \
				--set balance.memory_limit_bytes=80000000000 --set comm.sum=bfloat16 --set comm.sum_group=4 >"$work/plan.json"
			jq -r --arg model $model --arg blocks $blocks --arg shard $shard '.meshes[0] | (.step_seconds / .idle_seconds.busy) as $to |
				[$model, $blocks, $shard, "\(.stages)x\(.replicas)", .microbatches, "\(.schedule_kind): \(.schedule)", .grain, .step_seconds * 1000, $to] | @tsv' "$work/plan.json"
		done
	done
done | awk -F '\t' '
	{
		printf "%-8s %6s %-5s %8s %6s %-12s %-6s %8.1f %8.3f", $1, $2, $3, $4, $5, $6, $7, $8, $9
		printf $3 == "true" ? " %10.3f\n" : "\n", $8 / without
		without = $8
		if ($2 == 48) mean[$3] = sqrt($9 * before[$3])
		if ($2 == 48 && $3 == "true") for (i = 0; i < 2; i++) {
			shard = i ? "true" : "false"
			printf "%-8s %6s %-5s %53.3f\n", $1, "mean", shard, mean[shard]
		}
		before[$3] = $9
	}'
