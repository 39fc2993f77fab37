#!/usr/bin/env bash
# Plans of the paper's models of 48 layers, jobs/paper, on costs of this machine's CPU:
# cuts, times, memory and better settings. Costs are those of results/costs-48l. With
# "measure" they are measured first: a few microbatches of models of two or four blocks.
# That takes minutes a model on an idle core, and 7 GiB for early exit. Needs bin/dynmo
# (./build.sh build), or another program as BIN.
#
#   bench/plan-paper.sh [measure] >results/plan-paper.txt
set -euo pipefail
cd "$(dirname "$0")/.."

dynmo="${BIN:-bin/dynmo}"
kinds="early-exit freezing mod sparse-attention"
if [ "${1:-}" = measure ]; then
	for kind in $kinds; do
		GOMAXPROCS=1 OPENBLAS_NUM_THREADS=1 "$dynmo" profile "jobs/paper/$kind-48l.toml" --once --steps 1 \
			--set parallel.microbatches=2 --set device.kind=cpu --set run.clock=virtual \
			-o "results/costs-48l/$kind.json" --force
	done
fi

printf 'command: bench/plan-paper.sh\nrevision: %s\n' "$(git rev-parse --short HEAD)"
printf 'costs: results/costs-48l, measured by bench/plan-paper.sh measure: clock=virtual, one thread\n'
printf 'cpu: AMD EPYC (Zen 4), 2 cores, shared with other work; OpenBLAS 0.3.21, AVX-512\ndate: %s\n' "$(date -u +%F)"
printf 'note: stages of the plans, as `dynmo plan` prints them first, are left out\n'
for kind in $kinds; do
	printf '\n$ bin/dynmo plan jobs/paper/%s-48l.toml --costs results/costs-48l/%s.json --set device.kind=cpu\n' "$kind" "$kind"
	"$dynmo" plan "jobs/paper/$kind-48l.toml" --costs "results/costs-48l/$kind.json" --set device.kind=cpu | sed '/^stage /,/^$/d'
done
