#!/usr/bin/env bash
# Starts that fail: starts of eight ranks, one after the other, on a Slurm cluster of this
# host's own, while busy loops take the cores.
#
#   bench/starts.sh [STARTS] [LOOPS]     200 starts beside 14 loops
#
# Status 1 if a start failed or took over 300 s; the output of each is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
starts=${1:-200} loops=${2:-14} failed=0
work=$(mktemp -d)
chmod 755 "$work" # munge wants its socket to be reachable
export DYNMO_CLUSTER=$work/cluster SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
source bench/mpi.sh
mpi_environment
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; jobs/test-cluster.sh down; rm "$work/tiny.toml"; rmdir "$work" 2>/dev/null || true' EXIT
jobs/test-cluster.sh up 4 --no-accounting
eval "$(jobs/test-cluster.sh env)"

cat >"$work/tiny.toml" <<END
[model]
blocks = 4
hidden = 16
heads = 2
sequence = 16
[data]
path = "$PWD/README.md"
[parallel]
stages = 4
replicas = 2
[train]
steps = 2
END

# Each loop in a session of its own: Linux shares the cores among sessions.
for ((i = 0; i < loops; i++)); do
	setsid bash -c 'while :; do :; done' &
	pids+=($!)
done
began=$SECONDS
for ((i = 1; i <= starts; i++)); do
	status=0
	timeout 300 srun --mpi=pmix --nodes=4 --ntasks=8 --kill-on-bad-exit=1 bin/dynmo train "$work/tiny.toml" \
		--no-run-dir >"$work/$i.log" 2>&1 || status=$?
	if [ "$status" = 0 ]; then
		rm "$work/$i.log"
	else
		failed=$((failed + 1))
		echo "start $i: status $status, $work/$i.log"
	fi
done
echo "$failed of $starts starts failed, beside $loops busy loops, in $((SECONDS - began)) s"
[ "$failed" = 0 ]
