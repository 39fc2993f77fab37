#!/usr/bin/env bash
# The demo: four MPI ranks train one model in two layouts, each without
# balancing and with two balancers, then one table of all six runs.
# ./build.sh demo builds what this needs and sets MPI up for it.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=build/demo
rm -rf "$runs"
list=()
for layout in 4x1 2x2; do
	for kind in uniform partition diffusion; do
		run=$runs/$layout-$kind
		list+=("$run")
		printf '\n== %s, balance.kind = %s\n' "jobs/demo-$layout.toml" "$kind"
		mpirun -np 4 bin/dynmo train "jobs/demo-$layout.toml" --set "balance.kind=$kind" --run-dir "$run"
	done
done
printf '\n'
bin/dynmo table "${list[@]}"
