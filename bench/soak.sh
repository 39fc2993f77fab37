#!/usr/bin/env bash
# soak.sh [MINUTES]: a pruning run on four MPI ranks is disturbed for MINUTES (120). It writes a
# checkpoint every 3 steps. Meanwhile its checkpoints are exported, verified and sampled from in a
# loop. All ranks are stopped and continued, again and again, for longer than any wait may last. Twice
# the disk of the run is full for a minute, as root, who can mount one. Where the run ends, the same
# command goes on. No reader may fail, and the hash must be that of a run which nobody disturbed.
# Needs bin/dynmo and mpirun: `./build.sh deps build`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=bench/mpi.sh
. bench/mpi.sh
mpi_environment
minutes=${1:-120}
dir=$(mktemp -d "${TMPDIR:-/tmp}/dynmo-soak.XXXXXX")
disk=$dir/disk
mkdir "$disk"
mounted=''
# shellcheck disable=SC2046 # numbers of processes
trap 'kill $(jobs -p) 2>/dev/null; pkill -KILL -f -- "--run-dir $disk/run"; [ -z "$mounted" ] || umount -l "$disk"; rm -rf "$dir"' EXIT
[ "$(id -u)" != 0 ] || ! mount -t tmpfs -o size=1g none "$disk" 2>/dev/null || mounted=yes
[ -n "$mounted" ] || echo "no disk is filled: that needs root, who may mount one"
end=$((SECONDS + 60 * minutes))

# train DIR ARGUMENT...: trains with a constant learning rate, so that the number of steps changes no
# step before.
train() {
	bin/dynmo train jobs/demo-4x1.toml --run-dir "$1" "${@:2}" --set train.hash=true --set train.log_every=100000 \
		--set model.blocks=6 --set model.hidden=48 --set model.sequence=32 --set data.limit_bytes=300000 \
		--set optimizer.lr=1e-3 --set optimizer.min_lr=1e-3 --set run.trace_steps=0 \
		--set dynamic.kind=prune --set prune.start=300 --set prune.every=300 --set prune.times=5
}

# ranks prints the processes that train.
ranks() {
	local pid
	for pid in $(pgrep -f -- "bin/dynmo train .*--run-dir $disk/run "); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != dynmo ] || echo "$pid"
	done
}

# read_on reads the run's checkpoints until the end, and writes a line for each reader that failed.
read_on() {
	local reads=0
	until [ -e "$disk/run/ckpt/LATEST" ]; do sleep 0.1; done
	while [ ! -e "$dir/over" ]; do
		for command in "ckpt export $disk/run -o $dir/hf --force" "ckpt verify $disk/run" "sample $disk/run --tokens 2"; do
			# shellcheck disable=SC2086 # words of a command
			bin/dynmo $command >/dev/null 2>"$dir/reader" || echo "$command: $(tail -n 1 "$dir/reader")" >>"$dir/failed"
			reads=$((reads + 1))
		done
		sleep 1
	done
	echo "$reads" >"$dir/reads"
}

# stop_often stops all ranks for 10 s, 20 s after it has continued them.
stop_often() {
	local stops=0 all
	while [ ! -e "$dir/over" ]; do
		sleep 20
		mapfile -t all < <(ranks)
		[ ${#all[@]} = 4 ] || continue
		kill -STOP "${all[@]}" 2>/dev/null
		sleep 10
		kill -CONT "${all[@]}" 2>/dev/null
		stops=$((stops + 1))
	done
	echo "$stops" >"$dir/stops"
}

# fill_disk fills the disk twice for a minute, after a quarter and after about half of the time.
fill_disk() {
	local until
	[ -n "$mounted" ] || return
	for _ in 1 2; do
		sleep $((15 * minutes))
		for ((until = SECONDS + 60; SECONDS < until; )); do
			dd if=/dev/zero bs=64K status=none >>"$disk/fill" 2>/dev/null
			sleep 1
		done
		rm "$disk/fill"
		echo x >>"$dir/filled"
	done
}

# follow STEPS trains the run that nobody disturbs up to STEPS.
follow() {
	train "$dir/undisturbed" --resume --set parallel.stages=1 --set checkpoint.every=end --set train.steps="$1" >"$dir/follows" 2>"$dir/following" ||
		{ tail -n 5 "$dir/following" && return 1; }
}

# follow_on follows the disturbed run until the end, each time up to its last recorded step.
follow_on() {
	local done=0 now
	while [ ! -e "$dir/over" ]; do
		sleep 20
		now=$(grep -c . "$disk/run/metrics.jsonl" 2>/dev/null)
		[ $((now - done)) -lt 1000 ] || { follow "$now" && done=$now; } || return
	done
}

read_on & readers=$!
follow_on & follower=$!
stop_often & stops=$!
fill_disk & filler=$!
starts=0
while [ "$SECONDS" -lt "$end" ]; do
	starts=$((starts + 1))
	mpirun -np 4 bash -c "$(declare -f train); train \"\$@\"" train "$disk/run" --resume \
		--set train.steps=100000000 --set checkpoint.every=3 --set checkpoint.keep=2 --set comm.stall_seconds=6 >"$dir/out" 2>>"$dir/log" &
	run=$!
	while kill -0 "$run" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
	if kill -0 "$run" 2>/dev/null; then
		touch "$dir/over"
		wait "$readers" "$stops"
		kill -TERM "$(ranks | head -n 1)"
		wait "$run"
	else
		wait "$run"
		echo "start $starts ended with status $? after step $(grep -c . "$disk/run/metrics.jsonl" 2>/dev/null): $(grep -a '^dynmo: ' "$dir/log" | tail -n 1 | cut -c1-150)"
		sleep 5
	fi
done
kill "$filler" 2>/dev/null
steps=$(sed -n 's/^\([0-9]*\) steps, .*/\1/p' "$dir/out")
hash=$(sed -n 's/.*, weights \([0-9a-f]*\)$/\1/p' "$dir/out")
[ -n "$hash" ] || { tail -n 20 "$dir/log" && exit 1; }
echo "disturbed for $minutes minutes: $steps steps in $starts starts, stopped $(cat "$dir/stops") times, disk full $(grep -c x "$dir/filled" 2>/dev/null) times"
touch "$dir/failed"
echo "$(cat "$dir/reads") exports, verifications and samples, $(grep -c . "$dir/failed" 2>/dev/null) failed"
[ ! -s "$dir/failed" ] || head -n 5 "$dir/failed"
wait "$follower"
follow "$steps" || exit
undisturbed=$(sed -n 's/.*, weights \([0-9a-f]*\)$/\1/p' "$dir/follows")
echo "disturbed:   $hash"
echo "undisturbed: $undisturbed"
[ ! -s "$dir/failed" ] && [ "$hash" = "$undisturbed" ]
