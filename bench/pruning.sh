#!/usr/bin/env bash
# The pruning study: a 24-block model on 8 stages, pruned to 90 %, under static
# and moving cuts; one table of makespans, bottlenecks and gaps. Ranks are
# goroutines, times are virtual. Needs bin/dynmo (./build.sh build).
#
#   bench/pruning.sh > results/pruning-24.txt
set -euo pipefail
cd "$(dirname "$0")/.."

runs=build/pruning
rm -rf "$runs"
list=()
for balance in uniform:time param:param partition:time partition:param diffusion:time diffusion:param; do
	kind=${balance%:*} by=${balance#*:}
	run=$runs/$kind-$by
	list+=("$run")
	bin/dynmo train jobs/pruning-24.toml --set "balance.kind=$kind" --set "balance.by=$by" --run-dir "$run" >&2
done
printf 'command: bench/pruning.sh\n'
sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$runs/uniform-time/provenance.json"
printf '\n'
bin/dynmo table --phases --wide "${list[@]}"
