#!/usr/bin/env bash
# Trains a model under every balancer, and sets the runs side by side: what balancing makes
# of a kind of dynamism, by execution. All ranks are threads of this process, and the clock
# is virtual: it counts CPU time of each rank, so that the ranks may share cores.
#
#   bench/balancers.sh CONFIG [--set table.key=value]...
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \?//p' "$0"; exit 2; }
dynmo=$(cd "$(dirname "$0")/.." && pwd)/bin/dynmo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

runs=()
train() { # NAME SETTING...
	local name=$1
	shift
	"$dynmo" train "${config[@]}" --set run.clock=virtual --run-dir "$work/$name" "${@/#/--set=}" >"$work/$name.log" 2>&1 ||
		{ cat "$work/$name.log" >&2; exit 1; }
	runs+=("$work/$name")
}
config=("$@")
train dense dynamic.kind=none
train uniform balance.kind=uniform
train param balance.kind=param
for kind in partition diffusion; do
	for by in time param; do
		train "$kind-by-$by" "balance.kind=$kind" "balance.by=$by"
	done
done
"$dynmo" table "${runs[@]}"
