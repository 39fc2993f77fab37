#!/usr/bin/env bash
# Tests train.sbatch and grow.sbatch, and what dynmo says under srun, on a cluster of this host's own.
# Jobs run side by side; a line for each says what was done to it, how many seconds it
# ran, how it ended, and how long after the fault it went on, or had stopped. Most run testdata/dynmo, which stands for dynmo and counts
# steps; those whose names begin with "dynmo" run bin/dynmo. $1 chooses by name.
# A test that sets fault has a line FAULT more: recover is the time from the fault until
# the log says that the job goes on, or has stopped, lost_steps how many steps were
# recorded and run again.
set -uo pipefail
jobs=$(cd "$(dirname "$0")" && pwd)
only=${1:-}

export DYNMO_CLUSTER
work=$(mktemp -d)
chmod 755 "$work" # munged wants its socket within reach of all
DYNMO_CLUSTER=$work/cluster
trap '"$jobs/test-cluster.sh" down 2>/dev/null; rm -rf "$work"' EXIT
accounting=()
if ! "$jobs/test-cluster.sh" need >/dev/null; then
	echo 'no slurmdbd or MariaDB: without accounting'
	accounting=(--no-accounting)
fi
"$jobs/test-cluster.sh" up 20 "${accounting[@]}" || exit 1
eval "$("$jobs/test-cluster.sh" env)"
real=$(cd "$jobs/.." && pwd)/bin/dynmo
export OMPI_MCA_mpi_yield_when_idle=1 # more ranks than cores
cd "$work" || exit 1

head -c 100000 "$jobs/train.sbatch" >text.txt
cat >run.toml <<'END'
[run]
name = "test"
[model]
blocks = 4
hidden = 16
heads = 2
sequence = 16
[data]
path = "text.txt"
[parallel]
stages = 4
microbatches = 4
[train]
steps = 40
hash = true
log_every = 1000
END

# submit OPTION... -- ARGUMENT...: submits train.sbatch, sets id and log.
submit() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	log=$work/$name.log
	id=$(sbatch --parsable --nodes=2 --ntasks-per-node=4 --output="$log" "${options[@]}" "$jobs/train.sbatch" run.toml --run-dir "$name.run" "$@")
}

# state prints a job's state and exit status.
state() { scontrol show job -o "$id" | sed -n 's/.* JobState=\([A-Z_]*\) .* ExitCode=\([0-9:]*\).*/\1 \2/p'; }

within() { # within SECONDS COMMAND...: whether it succeeds in that time
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.2
	done
}
over() { state | grep -qE '^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED) '; }
said() { grep -qF -- "$1" "$log" 2>/dev/null; }
reach() { within 60 said_step "$1" || problem "never reached step $1"; }
said_step() { [ "$(sed -n "$1p" "$name.run/metrics.jsonl" 2>/dev/null)" ]; }

problem() { problems+=("$1"); }
ends() { # ends SECONDS "STATE STATUS": how the job has to end
	within "$1" over || problem "not over after $1 s"
	[ "$(state)" = "$2" ] || problem "ended as $(state), want $2"
}
says() { said "$1" || problem "the log lacks: $1"; }
once() {
	local n
	n=$(grep -cF -- "$1" "$log")
	[ "$n" = 1 ] || problem "$n times in the log, want once: $1"
}
# A job of testdata/dynmo with HOLD waits there until `back` lets it go on: no test has to
# be fast. bin/dynmo gets enough steps.
#
# hurt COMMAND...: does something to the job, of which `back TEXT` waits for the answer
# in its log, and keeps how long that took.
hurt() {
	began_hurt=${EPOCHREALTIME/./}
	"$@" || problem "failed: $*"
}
back() {
	within 120 said "$1" || problem "the log never said: $1"
	recovered=$(((${EPOCHREALTIME/./} - began_hurt) / 100000))
	: >"$name.run/go"
}
host() { squeue -h -j "$id" -o %N | xargs scontrol show hostnames | sed -n "$1p"; }
rank() { # rank R: prints the process of a rank
	pgrep -f "^bash .*/dynmo train run.toml --run-dir $name.run|$real train run.toml --run-dir $name.run" | xargs -I '{}' sh -c \
		"cat /proc/{}/environ 2>/dev/null | tr '\\0' '\\n' | grep -qx SLURM_PROCID=$1 && echo {}" | head -n 1
}

# twice SIGNAL: sends the ranks a signal, and again 5 ms later.
twice() {
	scancel --signal="$1" "$id" && sleep 0.005 && scancel --signal="$1" "$id"
}
# preempt has an urgent job take the job's nodes, for a second.
preempt() {
	sbatch --quiet --partition=urgent --exclusive --nodelist="$(squeue -h -j "$id" -o %N)" --output=/dev/null --wrap 'sleep 1'
}
down() { scontrol update NodeName="$1" State=DOWN Reason=test; }
crash() { "$jobs/test-cluster.sh" kill "$1"; }

# A test is a function, whose name says what happens to the job.

t_done() {
	submit -- --set train.steps=20
	ends 60 'COMPLETED 0:0'
	says 'from step 0' && says 'train.sbatch: done'
}
t_usr1_requeue() {
	HOLD=15 submit -- --set train.steps=40
	reach 15
	hurt scancel --batch --signal=USR1 "$id"
	back 'requeued 1 times'
	ends 120 'COMPLETED 0:0'
	once 'stub: from step 0'
}
t_limit_requeue() {
	HOLD=15 submit --time=1 -- --set train.steps=40
	began_hurt=${EPOCHREALTIME/./}
	back 'requeued 1 times'
	ends 200 'COMPLETED 0:0'
	says 'will stop 30 s before the limit' && says 'half of the job' && says 'limit: the ranks write a checkpoint and stop' && says 'requeued 1 times'
}
t_slow_checkpoint_stops_earlier() {
	WRITE=8 HOLD=15 submit --time=2 -- --set train.steps=40
	within 60 said '2 checkpoints of 8 s' || problem 'lead is not 30 + 2 x 8 s'
	scancel "$id"
	ends 60 'CANCELLED 85:0'
}
t_limit_no_requeue() {
	REQUEUE=no HOLD=15 submit -- --set train.steps=40
	reach 15
	hurt scancel --batch --signal=USR1 "$id"
	back 'dynmo ended with status 85'
	ends 60 'FAILED 85:0'
	says "sbatch with --run-dir $name.run goes on"
}
t_stopped_ok() {
	REQUEUE=no HOLD=15 submit -- --set train.steps=40 --set train.stopped_is_success=true
	reach 15
	scancel --batch --signal=USR1 "$id"
	ends 60 'COMPLETED 0:0'
}
t_scontrol_requeue() {
	HOLD=15 submit -- --set train.steps=40
	reach 15
	hurt scontrol requeue "$id"
	back 'requeued 1 times'
	ends 120 'COMPLETED 0:0'
	once 'stub: from step 0'
}
t_node_down() {
	HOLD=15 submit --nodes=3 -- --set train.steps=40
	reach 15
	hurt down "$(host 3)"
	back 'start 2 of job'
	ends 120 'COMPLETED 0:0'
	says 'on 2 nodes'
}
t_node_crash() {
	HOLD=15 submit --nodes=3 --ntasks-per-node=2 -- --set train.steps=40
	reach 15
	hurt crash "$(host 3)"
	back 'start 2 of job'
	ends 200 'COMPLETED 0:0'
	says 'on 2 nodes'
}
t_fewer_stages() {
	HOLD=15 submit --nodes=2 --ntasks-per-node=2 -- --set train.steps=40
	reach 15
	hurt down "$(host 2)"
	back 'start 2 of job'
	ends 120 'COMPLETED 0:0'
	says '2 stages in place of 4' && says 'stub: from step 10'
}
t_kill_rank() {
	HOLD=15 submit -- --set train.steps=40
	reach 15
	hurt kill -KILL "$(rank 2)"
	back 'start 2 of job'
	ends 120 'COMPLETED 0:0'
	says 'from step 1' && once 'from step 0 on'
}
t_no_progress() {
	fault=F15
	FAULT=5:1:9 submit -- --set train.steps=60
	ends 120 'FAILED 93:0'
	says 'start 3 of job' && says 'three starts in turn'
}
t_most_restarts() {
	MAX_RESTARTS=0 FAULT=15:3:9 submit -- --set train.steps=60
	ends 60 'FAILED 3:0'
	once 'start 1 of job'
}
t_scancel() {
	HOLD=15 submit -- --set train.steps=40
	reach 15
	hurt scancel "$id"
	back 'dynmo ended with status 85'
	ends 60 'CANCELLED 85:0'
	within 10 grep -q '"status": "stopped"' "$name.run/summary.json" || problem 'the ranks had no time to stop'
}
t_sweep() {
	local first
	printf '%s\n' '--set train.steps=10' '--set train.steps=20' >sweep.txt
	SWEEP=sweep.txt submit --array=1-2 --
	log=$work/$name.log first=$id
	for task in 1 2; do
		id=${first}_$task
		ends 60 'COMPLETED 0:0'
	done
	says 'at step 10' && says 'at step 20'
}
t_too_few_places() {
	submit --nodes=1 --ntasks-per-node=2 --
	ends 60 'FAILED 2:0'
	says 'want --nodes=2, or --set parallel.stages=2'
}
t_gpus() {
	submit --nodes=3 --gpus-per-node=2 -- --set device.kind=cuda --set parallel.stages=6 --set train.steps=10
	ends 60 'COMPLETED 0:0'
	says '6 ranks on 3 nodes'
}
t_gpus_not_asked_for() {
	submit -- --set device.kind=cuda
	ends 60 'FAILED 2:0'
	says 'wants sbatch --gpus-per-node=N'
}
t_too_few_gpus() {
	submit --gres=gpu:1 -- --set device.kind=cuda
	ends 60 'FAILED 2:0'
	says 'do not fit on 2 nodes x 1: want --nodes=4'
}
t_no_such_site() {
	SITE=nowhere submit --
	ends 60 'FAILED 2:0'
	says 'SITE=nowhere: no file'
}

# gone_after SECONDS NODE...: whether nodes are idle in that time.
gone_after() { within "$1" idle "${@:2}" || problem "not idle after $1 s: ${*:2}"; }
idle() { [ "$(sinfo -h -N -n "$(paste -sd , <<<"${*// /,}")" -p test -o %T | sort -u)" = idle ]; }
lacks() { ! said "$1" || problem "the log has: $1"; }

t_release() {
	local nodes
	HOLD=15 RELEASE=15:1,3 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	reach 1
	nodes="$(host 2),$(host 4)"
	reach 15
	gone_after 20 "$nodes"
	sleep 25 # the watch of lost nodes looks every 5 s, and waits for 15
	: >"$name.run/go"
	ends 60 'COMPLETED 0:0'
	lacks 'nodes lost' && once 'start 1 of job' && lacks 'start 2 of job'
}
t_release_then_node_down() {
	HOLD=15 RELEASE=15:1,3 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	reach 15
	within 20 two_nodes || problem 'no nodes were given back'
	hurt down "$(host 2)"
	back 'start 2 of job'
	ends 120 'COMPLETED 0:0'
	says '1 nodes are left, for 1 ranks: 1 stages in place of 4' && says 'stub: from step 15'
}
two_nodes() { [ "$(squeue -h -j "$id" -o %D)" = 2 ]; }
t_release_then_kill_rank() {
	HOLD=15 RELEASE=15:1,3 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	reach 15
	within 20 two_nodes || problem 'no nodes were given back'
	hurt kill -KILL "$(rank 2)"
	back 'start 2 of job'
	ends 120 'COMPLETED 0:0'
	says '2 nodes are left, for 2 ranks: 2 stages in place of 4'
}
t_restart() {
	MAX_RESTARTS=0 HOLD=25 RESTART=15:2:0,2 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	within 60 said 'stub: from step 15' || problem 'no start after the restart'
	two_nodes || problem "the job has $(squeue -h -j "$id" -o %N), want two nodes"
	: >"$name.run/go"
	ends 60 'COMPLETED 0:0'
	says '2 of 4 nodes given back' && says '2 stages' && lacks 'nodes lost'
	[ ! -e "$name.run/next.json" ] || problem 'next.json is left'
	! compgen -G 'slurm_job_*_resize.*' >/dev/null || problem 'resize scripts are left'
}
# The batch host holds none of the ranks to be: it is kept.
t_restart_keeps_the_batch_host() {
	HOLD=25 RESTART=15:2:2,3 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	within 60 said 'stub: from step 15' || problem 'no start after the restart'
	says '1 of 4 nodes given back'
	: >"$name.run/go"
	ends 60 'COMPLETED 0:0'
}
t_restart_refused() {
	fault=F17
	mkdir -p "$name.bin"
	# shellcheck disable=SC2016 # expanded by the script that it writes
	printf '#!/bin/sh\n[ "$1" != update ] || { echo "slurm_update error: Invalid node name specified" >&2; exit 1; }\nexec %s "$@"\n' "$(command -v scontrol)" >"$name.bin/scontrol"
	chmod +x "$name.bin/scontrol"
	PATH=$work/$name.bin:$PATH MAX_RESTARTS=0 RESTART=15:2:0,2 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	ends 60 'COMPLETED 0:0'
	once 'WARNING: Slurm takes no nodes back (slurm_update error: Invalid node name specified): the run goes on with all 4'
	says '2 ranks on 2 nodes' && says 'stub: from step 15'
}

# grow NODES ARGUMENT...: submits grow.sbatch for the test's run, sets id and log.
grow() {
	log=$work/$name.grown.log
	id=$(sbatch --parsable --nodes="$1" --ntasks-per-node=1 --output="$log" "$jobs/grow.sbatch" "${@:2}")
}
t_grow() {
	local first
	HOLD=15 submit --nodes=2 --ntasks-per-node=1 -- --set train.steps=40 --set parallel.stages=2
	reach 15
	first=$id
	grow 4 "$name.run" --set parallel.stages=4 --set train.steps=40
	ends 90 'COMPLETED 0:0'
	says "job $first has $name.run: asked" && says '4 ranks on 4 nodes' && says 'stub: from step 15' && lacks 'from step 0'
	id=$first log=$work/$name.log
	ends 10 'FAILED 85:0'
	says 'TERM: the ranks write a checkpoint and stop'
}
# The stages are those the run began with, not the fewer of its last start.
t_grow_after_release() {
	HOLD=15 RELEASE=15:1,3 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	reach 15
	within 20 two_nodes || problem 'no nodes were given back'
	grow 4 "$name.run" --set train.steps=40
	ends 90 'COMPLETED 0:0'
	says '4 ranks on 4 nodes' && says 'stub: from step 15'
}
t_grow_requeued() {
	local first
	HOLD=15 submit --nodes=2 --ntasks-per-node=2 -- --set train.steps=40
	reach 15
	first=$id
	scancel --batch --signal=USR1 "$id"
	within 60 said 'requeued at step' || problem 'was not requeued'
	scontrol update JobId="$id" StartTime=now+3600
	grow 4 "$name.run" --set train.steps=40
	ends 90 'COMPLETED 0:0'
	says "job $first waits to go on with $name.run: cancelled" && says 'stub: from step 15'
}
t_grow_nothing() {
	grow 1 absent.run
	ends 60 'FAILED 2:0'
	says 'absent.run: no run there'
	mkdir -p "$name.run"
	: >"$name.run/config.toml"
	grow 1 "$name.run"
	ends 60 'FAILED 1:0'
	says "$name.run has no checkpoint to go on from"
}
t_grow_job_that_stays() {
	local first
	mkdir -p "$name.run"
	: >"$name.run/config.toml"
	first=$(sbatch --parsable --output=/dev/null --wrap 'trap "" TERM; sleep 60; sleep 60')
	echo "{\"job\":\"$first\"}" >"$name.run/run.lock"
	PATIENCE=5 grow 1 "$name.run"
	ends 60 'FAILED 1:0'
	says "job $first has not ended 5 s after it was asked to: it is RUNNING"
	scancel "$first"
}
t_grow_job_of_another() {
	local first
	[ "$(id -u)" = 0 ] || return 0 # nobody else can submit
	mkdir -p "$name.run"
	: >"$name.run/config.toml"
	first=$(sbatch --parsable --uid=nobody --chdir=/ --output=/dev/null --wrap 'sleep 60')
	echo "{\"job\":\"$first\"}" >"$name.run/run.lock"
	grow 1 "$name.run"
	ends 60 'FAILED 2:0'
	says "$name.run belongs to job $first of nobody"
	scancel "$first"
}

t_shellcheck() {
	command -v shellcheck >/dev/null || return 0
	log=$work/$name.log
	(cd "$jobs/.." && shellcheck -x jobs/*.sh jobs/*.sbatch jobs/env/*.sh jobs/testdata/dynmo) >"$log" || problem 'shellcheck has findings'
}

# under WAY ARGUMENT...: bin/dynmo as four tasks of srun, which has to be refused.
under() {
	log=$work/$name.log id=''
	timeout 60 srun --nodes=2 --ntasks=4 --mpi="$1" "$real" train "${@:2}" >"$log" 2>&1
	[ $? = 2 ] || problem "status is not 2"
	once 'dynmo: '
}
t_dynmo_plain_srun() { fault=F24 && under none run.toml && says 'srun --mpi=pmix'; }
t_dynmo_pmi2() { fault=F24 && under pmi2 run.toml && says 'with --mpi=pmi2'; }
t_dynmo_plain_srun_missing_file() { under none absent.toml; }
t_dynmo_missing_file() { under pmix absent.toml && says 'absent.toml'; }
t_dynmo_done() {
	DYNMO=$real submit --
	ends 60 'COMPLETED 0:0'
	says '40 steps, loss'
}

hash_of() { sed -n 's/^ *"hash": "\(.*\)".*/\1/p' "$1.run/summary.json"; }

# curve RUN STEPS: prints a run's first so many steps and their losses.
curve() { head -n "$2" "$1.run/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'; }

# lost prints how many recorded steps a job has run again, by what its log says.
lost() { sed -n 's/.* \([0-9]*\) lines of steps that are run again were cut off.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }'; }

# same: what is done to the job changes nothing of its final weights.
same() {
	within 5 test -s undisturbed.hash || problem 'no hash of an undisturbed run'
	[ "$(hash_of "$name")" = "$(cat undisturbed.hash)" ] || problem "weights $(hash_of "$name"), want those of an undisturbed run"
}
lasting=(--set train.steps=1000 --set checkpoint.every=100)
t_dynmo_usr1_half_the_nodes() {
	DYNMO=$real submit --nodes=4 --ntasks-per-node=1 -- "${lasting[@]}"
	reach 250
	hurt scancel --batch --signal=USR1 "$id"
	within 60 said 'requeued at step' || problem 'was not requeued'
	within 20 scontrol update JobId="$id" NumNodes=2 NumTasks=2 NumCPUs=2 2>/dev/null
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says '2 stages in place of 4'
	same
}
t_dynmo_requeue() {
	DYNMO=$real submit -- "${lasting[@]}"
	reach 250
	hurt scontrol requeue "$id"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	same
}
t_dynmo_preempted() {
	fault=F12
	DYNMO=$real submit -- "${lasting[@]}"
	reach 250
	hurt preempt
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says 'requeued 1 times'
	same
}
t_dynmo_term_twice() {
	fault=F12
	DYNMO=$real submit -- "${lasting[@]}"
	reach 250
	hurt twice TERM
	back 'train.sbatch: stopped at step'
	ends 60 'FAILED 85:0'
	once 'stopped by signal: terminated after step '
}
# The job never ends by itself: until it is stopped its losses are those of a run that
# nothing stops.
t_dynmo_limit() {
	fault=F13
	local endless=(--set train.steps=1000000 --set train.log_every=1000000) at other
	timeout 300 "$real" train run.toml "${endless[@]}" --run-dir endless.run >/dev/null 2>&1 &
	other=$!
	DYNMO=$real submit --time=1 -- "${endless[@]}"
	within 90 said 'limit: the ranks write a checkpoint and stop' || problem 'was not stopped before its limit'
	hurt true
	back 'resuming at step'
	at=$(sed -n 's/.*resuming at step \([0-9]*\) .*/\1/p' "$log")
	says "requeued at step $at"
	within 60 said_step $((at + 20)) || problem "did not get on from step $at"
	scancel "$id"
	ends 60 'CANCELLED 85:0'
	name=endless within 120 said_step $((at + 20)) || problem 'the run that nothing stops is too slow'
	kill "$other"
	cmp <(curve "$name" $((at + 20))) <(curve endless $((at + 20))) || problem "the losses are others than those of a run that nothing stopped"
}

# lose_node LOSE WHERE OPTION...: a job whose third node is lost, and which says where it
# goes on.
lose_node() {
	local node
	DYNMO=$real submit --nodes=3 "${@:3}" -- "${lasting[@]}"
	reach 1
	node=$(host 3)
	reach 250
	hurt "$1" "$node"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says "$2"
	same
}
t_dynmo_node_down() { fault=F14 && lose_node down 'on 2 nodes'; }
t_dynmo_node_crash() { fault=F14 && lose_node crash 'on 2 nodes'; }
t_dynmo_node_down_requeued() { fault=F15 && lose_node down 'requeued 1 times' --no-kill=off; }
t_dynmo_kill_rank() {
	local pid
	fault=F01
	DYNMO=$real submit -- "${lasting[@]}"
	reach 1
	pid=$(rank 2)
	reach 250
	hurt kill -KILL "$pid"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says 'start 2 of job'
	same
}

# test_one NAME: runs a test, and prints its line.
test_one() {
	local problems=() began=$SECONDS recovered='' verdict=PASS fault=''
	name=$1 id='' log=''
	export DYNMO=$jobs/testdata/dynmo
	"t_$name"
	[ ${#problems[@]} = 0 ] || verdict=FAIL
	[ -z "$recovered" ] || recovered="$((recovered / 10)).$((recovered % 10))"
	printf '%s  %-30s %4d s  %-14s  %s\n' "$verdict" "$name" $((SECONDS - began)) "${id:+$(state)}" "${recovered:+after $recovered s}"
	[ -z "$fault" ] || printf 'FAULT %s slurm=%s %s%s\n' "$fault" "$name" "$verdict" "${recovered:+ recover=${recovered}s lost_steps=$(lost)}"
	[ $verdict = FAIL ] || return 0
	printf '      %s\n' "${problems[@]}"
	sed 's/^/      | /' "$log"
}

names=$(declare -F | sed -n 's/^declare -f t_//p' | grep -F -- "$only")
if ! "$real" version >/dev/null 2>&1; then
	names=$(grep -v '^dynmo' <<<"$names")
	echo 'SKIP  dynmo*: no bin/dynmo'
elif ! "$real" train --help | grep -- --resume >/dev/null; then
	names=$(grep -vE '^dynmo_(done|usr1|requeue|preempted|term|limit|node|kill)' <<<"$names")
	echo 'SKIP  dynmo under train.sbatch: bin/dynmo train has no --resume'
else
	timeout 120 "$real" train run.toml "${lasting[@]}" --run-dir undisturbed.run >/dev/null 2>&1
	hash_of undisturbed >undisturbed.hash
fi
# Those of bin/dynmo compute, and come after the others.
for group in '^[^d]|^done' '^dynmo'; do
	while read -r each; do
		test_one "$each" >"$work/$each.out" 2>&1 </dev/null &
	done < <(grep -E "$group" <<<"$names")
	wait
done
cat "$work"/*.out
passed=$(cat "$work"/*.out | grep -c ^PASS)
failed=$(cat "$work"/*.out | grep -c ^FAIL)
echo "$passed passed, $failed failed, in $SECONDS s"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
