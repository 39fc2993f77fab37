# Tests of bin/dynmo under srun and train.sbatch. jobs/test-slurm.sh reads this file.

# under WAY ARGUMENT...: runs bin/dynmo as four tasks of srun, which dynmo must refuse.
under() {
	log=$work/$name.log id=''
	timeout 600 srun --nodes=2 --ntasks=4 --mpi="$1" "$real" train "${@:2}" >"$log" 2>&1
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
t_dynmo_diverges() {
	fault=F08
	DYNMO=$real submit -- --set optimizer.lr=1e30 --set optimizer.warmup=0 --set train.on_nan=skip --set train.nan_limit=5 --set checkpoint.every=3
	ends 60 'FAILED 93:0'
	once 'start 1 of job'
	[ -s "$name.run/ckpt/step_00000003/manifest.json" ] || problem 'the checkpoint in progress was dropped'
}

# A study of the scaling scripts: its runs are collected where figures look, and are drawn.
t_dynmo_scaling() {
	log=$work/$name.told id=''
	cp -r "$jobs/../results" "$name.results"
	DYNMO=$real "$jobs/scaling/run.sh" fig8 --nodes 2 --ranks 2 --config run.toml --results "$name.results" >"$log" 2>&1
	says '2 runs of 4 stages x 1 replicas'
	within 120 test -s "$name.results/executed/fig8-4-ranks.json" || problem 'no runs were collected'
	"$real" figures --only fig8 --results "$name.results" -o "$name.drawn" >>"$log" 2>&1
	grep -q '^| 4 ranks |' "$name.drawn/fig8.md" || problem 'figure 8 has no executed runs'
}

# curve RUN STEPS: prints the first STEPS steps of a run with their losses.
curve() { head -n "$2" "$1.run/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'; }

# lost prints the number of recorded steps that a job has run again, from its log.
lost() { sed -n 's/.* \([0-9]*\) lines of steps that are run again were cut off.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }'; }

lasting=(--set train.steps=1000 --set checkpoint.every=100)
undisturbed() { reference undisturbed run.toml "${lasting[@]}"; }

# lasts OPTION... --: submits bin/dynmo for 1,000 steps. Rank 0 is slow for 100 steps from step
# 250 on: even a busy host then has time to hurt the job in mid-run. The other ranks wait, and
# no layer leaves the slow rank.
lasts() { DYNMO_FAULT=slow@250-349:0x100 DYNMO=$real submit "$@" "${lasting[@]}" "${patient[@]}" --set balance.kind=uniform; }
# A suspended job is stopped for longer than any of its waits may last, and goes on.
t_dynmo_suspended() {
	lasts -- --set comm.stall_seconds=4
	reach 250
	scontrol suspend "$id" || problem 'was not suspended'
	sleep 12
	hurt scontrol resume "$id"
	ends 240 'COMPLETED 0:0'
	once 'start 1 of job'
	same undisturbed
}
# Records of more than 1 GiB are those of a long run. A requeued job goes on with them.
t_dynmo_long_records() {
	local line
	lasts --
	reach 250
	line=$(sed -n 100p "$name.run/metrics.jsonl")
	yes "$line" | head -n $((1100000000 / ${#line})) >>"$name.run/metrics.jsonl"
	hurt scontrol requeue "$id"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	same undisturbed
	rm "$name.run/metrics.jsonl"
}
t_dynmo_usr1_half_the_nodes() {
	lasts --nodes=4 --ntasks-per-node=1 --
	reach 250
	hurt scancel --batch --signal=USR1 "$id"
	within 60 said 'requeued at step' || problem 'was not requeued'
	within 20 scontrol update JobId="$id" NumNodes=2 NumTasks=2 NumCPUs=2 2>/dev/null
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says '2 stages in place of 4'
	same undisturbed
}
t_dynmo_requeue() {
	lasts --
	reach 250
	hurt scontrol requeue "$id"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	same undisturbed
}
t_dynmo_preempted() {
	fault=F12
	lasts --
	reach 250
	hurt preempt
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says 'requeued 1 times'
	same undisturbed
}
t_dynmo_term_twice() {
	fault=F12
	lasts --
	reach 250
	hurt twice TERM
	back 'train.sbatch: stopped at step'
	ends 60 'FAILED 85:0'
	if [ "$MPI" = mpirun ]; then # the signal reaches ranks of other nodes than rank 0's
		once 'dynmo: stopped by '
	else
		once 'stopped by signal: terminated after '
	fi
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

# lose_node LOSE WHERE OPTION...: a job loses its third node. Its log must say WHERE the job
# goes on.
lose_node() {
	local node
	lasts --nodes=3 "${@:3}" --
	reach 1
	node=$(host 3)
	reach 250
	hurt "$1" "$node"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says "$2"
	same undisturbed
}
t_dynmo_mpirun_node_down() { fault=F14 && MPI=mpirun lose_node down 'on 2 nodes'; }
t_dynmo_mpirun_done() {
	MPI=mpirun DYNMO=$real submit --
	ends 60 'COMPLETED 0:0'
	says '40 steps, loss' && says '4 ranks on 2 hosts'
}
t_dynmo_mpirun_usr1() {
	MPI=mpirun lasts --
	reach 250
	hurt scancel --batch --signal=USR1 "$id"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says 'stopped by signal: user defined signal 2' && says 'requeued at step'
	same undisturbed
}
t_dynmo_node_down() { fault=F14 && lose_node down 'on 2 nodes'; }
t_dynmo_node_crash() { fault=F14 && lose_node crash 'on 2 nodes'; }
t_dynmo_node_down_requeued() { fault=F15 && lose_node down 'requeued 1 times' --no-kill=off; }
t_dynmo_kill_rank() { kill_rank; }
t_dynmo_mpirun_kill_rank() { MPI=mpirun kill_rank; }
kill_rank() {
	local pid
	fault=F01
	lasts --
	reach 1
	pid=$(rank 2)
	reach 250
	hurt kill -KILL "$pid"
	back 'resuming at step'
	ends 240 'COMPLETED 0:0'
	says 'start 2 of job'
	same undisturbed
}
