#!/usr/bin/env bash
# The demo: four MPI ranks train one model on fixed cuts and under two balancers. Each
# runs twice, in turn, so that a disturbance of the machine hits all alike. One table, a
# verdict and a report follow. The script fails unless all runs have the same losses and
# weights. The command ./build.sh demo builds all programs and sets MPI up.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=build/demo
job=jobs/demo-4x1.toml

# busy prints the CPU seconds of all processes of this machine, and of this script with its
# children. It prints nothing where the system does not say.
busy() {
	[ -r /proc/stat ] || return 0
	local hz
	hz=$(getconf CLK_TCK)
	{ head -n 1 /proc/stat; cat "/proc/$$/stat"; } | awk -v hz="$hz" '
		NR == 1 { all = $2 + $3 + $4 + $7 + $8 }
		NR == 2 { sub(/.*\) /, ""); own = $12 + $13 + $14 + $15 }
		END { printf "%.2f %.2f\n", all / hz, own / hz }'
}

# outcome RUN: the losses of all steps and the hash of the weights after the last.
outcome() {
	sed -E 's/.*"loss":([^,}]*).*/\1/' "$1/metrics.jsonl"
	grep -oE '"hash": *"[0-9a-f]+"' "$1/summary.json"
}

rm -rf "$runs"
mkdir -p "$runs"
start=$SECONDS before=$(busy)
turns=0
for turn in 1:uniform 1:partition 1:diffusion 2:diffusion 2:partition 2:uniform; do
	round=${turn%:*} kind=${turn#*:}
	left=
	[ $turns = 0 ] || left=", about $(((SECONDS - start) * (6 - turns) / turns)) s left"
	turns=$((turns + 1))
	printf '\n== run %s of 6: round %s, balance.kind = %s%s\n' "$turns" "$round" "$kind" "$left"
	mpirun -np 4 bin/dynmo train "$job" --set "balance.kind=$kind" --set "run.name=round $round" --run-dir "$runs/$kind-$round"
done
seconds=$((SECONDS - start)) after=$(busy)

list=("$runs"/{uniform,partition,diffusion}-{1,2})
for run in "${list[@]}"; do
	cmp -s <(outcome "${list[0]}") <(outcome "$run") || {
		echo "demo: losses or weights of $run differ from those of ${list[0]}" >&2
		exit 1
	}
done

bin/dynmo report "$runs/partition-1" -o "$runs/report.html" >/dev/null
printf '\n%d runs in %d s: the losses of all steps and the final weights are equal, bit for bit.\n' "${#list[@]}" "$seconds"
awk -v seconds="$seconds" 'NF == 4 {
	others = ($3 - $1 - ($4 - $2)) / seconds
	if (others > 0.2)
		printf "Warning: other processes kept %.1f cores busy. Measured times, before and after, are longer for it.\n", others
}' <<<"$before $after"
printf '\n'
bin/dynmo table "${list[@]}"
printf 'Report: %s/%s/report.html, one file that any browser opens.\n' "$PWD" "$runs"
