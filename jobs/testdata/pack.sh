# Tests of runs that pack themselves onto fewer nodes and give the others back, with
# bin/dynmo. jobs/test-slurm.sh reads this file. Those named bare have no slurmdbd, without
# which Slurm before 24.11 shrinks a job once, and later versions any number of times.

# event KIND FIELD: prints a field of the run's events of a kind, a line each: a list with
# commas.
event() {
	grep "\"kind\":\"$1\"" "$name.run/events.jsonl" 2>/dev/null | grep "\"$2\":" |
		sed "s/.*\"$2\":\(\[[^]]*\]\|\"[^\"]*\"\|[^,}]*\).*/\1/; s/[]\"[]//g"
}
packed() { [ "$(event repack step | wc -l)" -ge "$1" ]; }
given_back() { [ "$(event release refused | wc -l)" -lt "$(event release step | wc -l)" ]; }
node_count() { squeue -h -j "$id" -o %D; }

# watch_idle notes twice a second which nodes are idle.
watch_idle() {
	while sleep 0.5; do
		sinfo -h -N -p test -t idle -o "$(date +%s) %N"
	done >"$name.idle"
}

# idle_at NODE SECOND: prints when a node was seen idle first, from a second on.
idle_at() { awk -v node="$1" -v from="$2" '$2 == node && $1 >= from { print $1; exit }' "$name.idle"; }

# seen_idle OTHER: every node that was given back was idle within 5 s of the event, or
# given to the job OTHER. It sets more.
seen_idle() {
	local before after when node first latest=0 list='' other
	other=$(squeue -h -t all -j "$1" -o %N | xargs scontrol show hostnames)
	while read -r before after when; do
		when=$(date -d "$when" +%s)
		for node in ${before//,/ }; do
			[[ ",$after," != *",$node,"* ]] || continue
			list+=${list:+,}$node
			first=$(idle_at "$node" $((when - 3)))
			! grep -qx "$node" <<<"$other" || continue
			[ "${first:-$((when + 6))}" -le $((when + 5)) ] || problem "$node was given back at $when, and idle at ${first:-no time}"
			[ $((${first:-0} - when)) -le "$latest" ] || latest=$((first - when))
		done
		list+=';'
	done < <(paste -d ' ' <(event release nodes_before) <(event release nodes) <(event release time))
	more="releases=$(event release step | wc -l) nodes=${list%;} idle=${latest}s"
}

# leftovers prints the processes of the job's ranks on nodes that it has no more.
leftovers() {
	local pid node
	for pid in $(pgrep -f "$real train $config --run-dir $name.run"); do
		node=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | sed -n 's/^SLURMD_NODENAME=//p')
		[ -z "$node" ] || squeue -h -j "$id" -o %N | xargs scontrol show hostnames | grep -qx "$node" || echo "$pid on $node"
	done
}

# pack OPTION... -- ARGUMENT...: submits bin/dynmo with pack.toml on 4 nodes of 2 ranks.
pack() {
	config=pack.toml
	reference packed_reference "$config"
	DYNMO=$real submit --nodes=4 --ntasks-per-node=2 "$@"
}

t_smoke() {
	if [ "$MPI" != pmix ]; then # no nodes go back in mid-run
		pack_restart
		return
	fi
	sed -i 's/^steps = .*/steps = 300/' pack.toml # time for Slurm on a busy host, and little else
	pack -- --set elastic.release=slurm "${patient[@]}"
	within 90 given_back || problem 'no nodes were given back'
	gone_after 5 "$(event release nodes_before | tr , '\n' | grep -vxFf <(event release nodes | tr , '\n') | paste -sd ,)"
	[ "$(node_count)" = 2 ] || problem "the job has $(node_count) nodes while it trains on, want 2"
	ends 120 'COMPLETED 0:0'
	says 'dynmo ended with status 0'
	same packed_reference
}

# pruning ARGUMENT...: submits pruning.toml on 8 nodes of 2 ranks.
pruning() {
	config=$jobs/pruning.toml
	local small=(--set data.path=text.txt --set model.blocks=16 --set parallel.microbatches=8 --set parallel.microbatch_size=1)
	reference pruning_reference "$config" "${small[@]}"
	DYNMO=$real submit --nodes=8 --ntasks-per-node=2 -- "${small[@]}" --set repack.kind=sustain --set elastic.release=slurm "${patient[@]}" "$@"
}

# Several releases in one run; another job starts on released nodes while it trains.
t_pack_releases() {
	local other watcher
	fault=F16
	pruning
	within 60 test -s "$name.run/metrics.jsonl" || problem 'does not start'
	watch_idle &
	watcher=$!
	# shellcheck disable=SC2016 # expanded on the node
	other=$(sbatch --parsable --exclusive --nodes=$(($(sinfo -h -N -p test -t idle -o %N | wc -l) + 1)) --output="$name.other" \
		--wrap 'scontrol show hostnames; date +%s')
	within 400 test -s "$name.other" || problem 'the job that waited for nodes did not start'
	[[ "$(state)" = RUNNING* ]] || problem "the other job started when this one was $(state)"
	[ -z "$(leftovers)" ] || problem "left behind: $(leftovers)"
	ends 400 'COMPLETED 0:0'
	kill "$watcher"
	[ "$(event release step | wc -l)" -ge 2 ] || problem "$(event release step | wc -l) releases, want two"
	[ -z "$(event release refused)" ] || problem "refused: $(event release refused)"
	seen_idle "$other"
	once 'start 1 of job' && says 'dynmo ended with status 0' && lacks 'nodes lost' && lacks 'start 2 of job'
	same pruning_reference
}
t_bare_second_release() {
	fault=F18
	pruning --set elastic.retry_seconds=4
	ends 600 'COMPLETED 0:0'
	if [ "$(printf '%s\n' 24.11 "$(sinfo --version | grep -o '[0-9].*')" | sort -V | tail -n 1)" = 24.11 ]; then
		[ "$(event release refused | wc -l)" -ge 1 ] || problem 'no release was refused'
		[ "$(event release refused | grep -c 'DB index')" -ge 1 ] || problem "refused for another reason: $(event release refused)"
	else
		[ -z "$(event release refused)" ] || problem "refused: $(event release refused)"
	fi
	once 'start 1 of job' && says 'dynmo ended with status 0'
	more="releases=$(event release step | wc -l) refused=$(event release refused | wc -l)"
	same pruning_reference
}

# first_start FAULT: makes NAME.dynmo, which has a fault in the job's first start.
first_start() {
	cat >"$name.dynmo" <<-END
		#!/bin/sh
		[ "\$SLURM_STEP_ID" != 0 ] || export DYNMO_FAULT=$1
		exec $real "\$@"
	END
	chmod +x "$name.dynmo"
}

# leaving: as pack, but in the first start rank 3, which has no place once the model is
# packed onto nodes 1 and 4 (fewer bytes move then), stops as it waits for its order to go:
# ranks are leaving until it has gone, or for 60 s.
leaving() {
	first_start stop@0.parked:3
	config=pack.toml
	reference packed_reference "$config"
	DYNMO=$PWD/$name.dynmo submit --nodes=4 --ntasks-per-node=2 -- --set elastic.release=slurm
	within 60 test -s "$name.run/metrics.jsonl" || problem 'does not start'
}

# as_it_packs COMMAND...: hurts a job of which ranks are leaving.
as_it_packs() {
	within 120 packed 1 || problem 'was never packed'
	hurt "$@"
	back 'start 2 of job' # from step 0 where there is no checkpoint yet
	ends 300 'COMPLETED 0:0'
	same packed_reference
}
t_pack_node_down() {
	fault=F14
	leaving
	as_it_packs down "$(host 2)"
}
t_pack_node_crash() {
	fault=F14
	leaving
	as_it_packs crash "$(host 4)"
}
t_pack_kill_leaver() {
	fault=F16
	leaving
	as_it_packs kill -KILL "$(rank 3)"
}
t_pack_kill_survivor() {
	fault=F16
	leaving
	as_it_packs kill -KILL "$(rank 1)"
}
t_pack_kill_after_release() {
	fault=F16
	first_start slow@100-299:1x20 # on a busy host the run would be over before it is hurt
	local real=$PWD/$name.dynmo
	pack -- --set elastic.release=slurm "${patient[@]}"
	within 120 given_back || problem 'no nodes were given back'
	hurt kill -KILL "$(rank 1)"
	back 'resuming at step'
	ends 300 'COMPLETED 0:0'
	says 'start 2 of job' && says '2 nodes are left, for 4 ranks: 2 stages in place of 4'
	same packed_reference
}
# hurt_in MODE RANK: kills a rank as soon as the run has packed itself in that mode of
# elastic.release; whatever was under way then, the run ends as if nothing had happened.
hurt_in() {
	pack -- --set elastic.release="$1" "${patient[@]}"
	within 120 packed 1 || problem 'was never packed'
	hurt kill -KILL "$(rank "$2")"
	back 'start 2 of job'
	ends 300 'COMPLETED 0:0'
	same packed_reference
}
t_pack_exit_kill() { fault=F16 && hurt_in exit 1; }
t_pack_restart_kill() { fault=F16 && hurt_in restart 1; }
t_pack_mpirun_restart() { MPI=mpirun pack_restart; }
t_pack_restart() { pack_restart; }
pack_restart() {
	MAX_RESTARTS=0 pack -- --set elastic.release=restart "${patient[@]}"
	ends 300 'COMPLETED 0:0'
	says '2 of 4 nodes given back' && says 'start 2 of job' && says '4 ranks on 2 nodes' && lacks 'nodes lost'
	same packed_reference
}
t_pack_grow() {
	local first
	pack -- --set elastic.release=slurm
	within 120 given_back || problem 'no nodes were given back'
	first=$id log=$work/$name.grown.log
	id=$(DYNMO=$real sbatch --parsable --nodes=4 --ntasks-per-node=2 --output="$log" "$jobs/grow.sbatch" "$name.run" --set repack.kind=none)
	ends 300 'COMPLETED 0:0'
	says "job $first has $name.run: asked" && says '8 ranks on 4 nodes' && says 'resuming at step'
	same packed_reference
	id=$first log=$work/$name.log
	[ "$(state)" = 'FAILED 85:0' ] || problem "the first job ended as $(state), want FAILED 85:0"
}
