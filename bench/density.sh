#!/usr/bin/env bash
# Measures how dense sparse attention is. Trains jobs/sparse-attention.toml for 1,000 steps.
# The density of a layer is the share of its causal pairs of query and key that share a
# bucket. Prints each layer's density over the second half of the steps, and the deviation
# of its logarithm. The values of simulate.density_* are from this table. Ranks are
# goroutines. Needs bin/dynmo (./build.sh build), or another program as BIN.
#
#   bench/density.sh >results/attention-density.txt
#   bench/density.sh --set model.sequence=2048 --set attention.buckets=4    # or other settings
set -euo pipefail
cd "$(dirname "$0")/.."

run=build/density
rm -rf "$run"
"${BIN:-bin/dynmo}" train jobs/sparse-attention.toml --set train.steps=1000 "$@" --run-dir "$run" >&2

printf 'command: bench/density.sh%s\n' "${*:+ $*}"
sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$run/provenance.json"
printf '\n'
tail -n "$(($(wc -l <"$run/metrics.jsonl") / 2))" "$run/metrics.jsonl" |
	grep -o '"layer":"[^"]*","name":"pairs","values":\[[0-9,]*\]' |
	awk -F '[":,\\[\\]]+' '
		{
			density = $7 / $8
			if (!($3 in n)) { layer[layers++] = $3; least[$3] = most[$3] = density }
			n[$3]++; sum[$3] += density; logs[$3] += log(density); squares[$3] += log(density) ^ 2
			if (density < least[$3]) least[$3] = density
			if (density > most[$3]) most[$3] = density
		}
		END {
			printf "%-10s %6s %6s %6s %9s\n", "layer", "mean", "least", "most", "deviation"
			for (i = 0; i < layers; i++) {
				l = layer[i]; mean = logs[l] / n[l]
				printf "%-10s %6.4f %6.4f %6.4f %9.4f\n", l, sum[l] / n[l], least[l], most[l], sqrt(squares[l] / n[l] - mean ^ 2)
			}
		}'
