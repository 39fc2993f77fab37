#!/usr/bin/env bash
# The packing study: the 24-block model of jobs/pruning-24.toml on 8 ranks, pruned to 90 %.
# One run keeps all ranks to the end; the others pack, one for each kind of packing. Prints
# ranks and throughput by the sparsity of the model. Throughput is a share of the dense
# model's, measured and predicted. Then the simulator's result on the costs that the run
# recorded. Times are virtual. RANKS="mpirun -np 8" starts processes; without it ranks are
# goroutines. Needs bin/dynmo (./build.sh build) and jq.
#
#   bench/repack.sh > results/repack.txt
#   bench/repack.sh DIR...     # prints kept runs
set -euo pipefail
cd "$(dirname "$0")/.."

work=(--set parallel.microbatch_size=1 --set prune.start=15 --set prune.every=15 --set train.steps=90 --set balance.every=auto --set train.hash=true)
runs=("$@")
if ((!$#)); then
	for kind in none sustain first-fit; do
		run=build/repack/$kind
		list=("${work[@]}" --set "repack.kind=$kind")
		[[ $kind != first-fit ]] || list+=(--set balance.memory_limit_bytes=33000000)
		${RANKS:-} bin/dynmo train jobs/pruning-24.toml "${list[@]}" --run-dir "$run" --force >&2
		runs+=("$run")
	done
fi

printf 'command: bench/repack.sh\n'
sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "${runs[0]}/provenance.json"
for run in "${runs[@]}"; do
	printf '\n%s: ranks were %s\n' "$(basename "$run")" "$(jq -r 'if .mpi then "processes" else "goroutines" end' "$run/provenance.json")"
	jq -rs '
		def median: sort | .[length / 2 | floor];
		def row: map(tostring) | join(" | ");
		def fixed: . * 1000 | round / 1000;
		[.[] | {step, ranks, makespan, predicted, sparsity: (.sparsity * 10000 | round / 10000)}] as $steps
		| ($steps | map(select(.sparsity == 0))) as $dense
		| ($dense | map(.makespan) | median) as $made | ($dense | map(.predicted) | median) as $said
		| (["sparsity", "ranks", "steps", "throughput", "predicted"] | row),
		  ($steps | group_by([.sparsity, -.ranks]) | .[] | [.[0].sparsity, .[0].ranks, length,
			($made / (map(.makespan) | median) | fixed), ($said / (map(.predicted) | median) | fixed)] | row),
		  "mean ranks \($steps | map(.ranks) | add / length | fixed) of \($steps[0].ranks) by steps; the paper has 5.8 of 8"
	' "$run/metrics.jsonl"
	jq -r '"weights \(.hash)"' "$run/summary.json"
	jq -r 'select(.kind == "repack") | "packed after step \(.step): from \(.detail.stages_before) stages onto \(.detail.stages), throughput \(.detail.throughput * 1000 | round / 1000) predicted"' "$run/events.jsonl"
	printf 'as the simulator foretells it from costs.jsonl (clock=sim):\n'
	bin/dynmo simulate "$run/config.toml" --costs "$run/costs.jsonl" --json 2>/dev/null |
		jq -r '.packing // {segments: []} | (.segments[1:][] | "packed before step \(.step): onto \(.ranks) ranks, throughput \(.throughput * 1000 | round / 1000)"),
			(if .mean_ranks then "mean ranks \(.mean_ranks * 100 | round / 100) by seconds" else "nothing is packed" end)'
done
