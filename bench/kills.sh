#!/usr/bin/env bash
# kills.sh [N]: a pruning run on three MPI ranks is killed N times (20): kill -9 of one
# rank, at random, some time after the run has started or gone on. Each time the same
# command goes on from the last checkpoint. At the end the hash must be that of a run
# which nobody disturbed. Needs bin/dynmo and mpirun: `./build.sh deps build`, as root
# with the environment that mpirun wants then.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
kills=${1:-20}
dir=$(mktemp -d "${TMPDIR:-/tmp}/dynmo-kills.XXXXXX")
trap 'rm -rf "$dir"' EXIT

# go_on NAME: trains the run NAME to its end, from its last checkpoint if it has one.
go_on() {
	mpirun -np 3 bin/dynmo train jobs/demo-4x1.toml --run-dir "$dir/$1" --resume \
		--set train.steps=3000 --set train.hash=true --set checkpoint.every=25 \
		--set model.blocks=6 --set model.hidden=48 --set model.sequence=32 --set data.limit_bytes=300000 \
		--set parallel.stages=3 --set parallel.microbatches=4 \
		--set dynamic.kind=prune --set prune.start=300 --set prune.every=300 --set prune.times=5 \
		>"$dir/$1.out" 2>"$dir/$1.err"
}

# ranks prints the processes of the run NAME that train.
ranks() {
	local pid
	for pid in $(pgrep -f -- "bin/dynmo train .*--run-dir $dir/$1 "); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != dynmo ] || echo "$pid"
	done
}

# cause prints why the run ended: mpirun alone tells of a rank that is killed before MPI
# has started.
cause() { { grep '^dynmo: ' "$dir/killed.err" || grep -o '^mpirun noticed .*' "$dir/killed.err"; } | head -n 1 | cut -c1-120; }

# weights NAME: prints the hash with which a run ended.
weights() { sed -n 's/.*, weights \([0-9a-f]*\)$/\1/p' "$dir/$1.out"; }

go_on undisturbed || { cat "$dir/undisturbed.err" && exit 1; }
for ((i = 1; i <= kills; i++)); do
	go_on killed &
	run=$!
	sleep "1.$((RANDOM % 10))$((RANDOM % 10))"
	mapfile -t all < <(ranks killed)
	[ ${#all[@]} -eq 0 ] || kill -9 "${all[RANDOM % ${#all[@]}]}" 2>/dev/null
	began=$(date +%s%N)
	wait "$run"
	status=$?
	printf '%d: status %d after %d ms, %d steps recorded: %s\n' "$i" "$status" $((($(date +%s%N) - began) / 1000000)) \
		"$(grep -c . "$dir/killed/metrics.jsonl" 2>/dev/null)" "$(cause)"
	[ "$status" != 0 ] || break
done
go_on killed || { cat "$dir/killed.err" && exit 1; }
echo "undisturbed: $(weights undisturbed)"
echo "killed:      $(weights killed)"
[ -n "$(weights killed)" ] && [ "$(weights killed)" = "$(weights undisturbed)" ]
