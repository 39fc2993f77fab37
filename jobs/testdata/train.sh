# Tests of train.sbatch with the stand-in for dynmo. jobs/test-slurm.sh reads this file;
# a test is a function, whose name says what happens to the job.

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
	grep -qE 'will stop (2[0-9]|30) s before the limit' "$log" || problem 'the lead is not half of the job'
	says 'half of the job' && says 'limit: the ranks write a checkpoint and stop' && says 'requeued 1 times'
}
t_slow_checkpoint_stops_earlier() {
	WRITE=20 HOLD=15 submit --time=4 -- --set train.steps=40
	within 90 led_by_checkpoints || problem 'lead is not 30 + 2 x 20 s and two steps'
	scancel "$id"
	ends 60 'CANCELLED 85:0'
}
led_by_checkpoints() { grep -qE 'will stop (7|8|9)[0-9] s before .*: 30 s, 2 checkpoints of 20 s' "$log"; } # steps are slow on a busy host
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
t_lost_node() { lose_third_node; }
t_lost_node_without_limit() { lose_third_node --time=UNLIMITED; }
lose_third_node() {
	HOLD=15 submit --nodes=3 "$@" -- --set train.steps=40
	reach 15
	hurt down "$(host 3)"
	back 'start 2 of job'
	ends 120 'COMPLETED 0:0'
	says 'on 2 nodes'
}
t_crashed_node() {
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
	HOLD=7 FAULT=5:1:9 submit -- --set train.steps=60
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
# The script is stopped while it asks Slurm for the nodes of its first start.
t_stopped_before_start() {
	mkdir -p "$name.bin"
	# shellcheck disable=SC2016 # expanded by the script that it writes
	printf '#!/bin/sh\nscancel --batch --signal=TERM "$SLURM_JOB_ID"\nexec %s "$@"\n' "$(command -v squeue)" >"$name.bin/squeue"
	chmod +x "$name.bin/squeue"
	PATH=$work/$name.bin:$PATH submit -- --set train.steps=20
	ends 60 'FAILED 85:0'
	says 'train.sbatch: stopped at step 0' && lacks 'start 1'
}
# late COMMAND...: once a job is cancelled, Slurm gives the present as its end, but TERM reaches
# its script 5 s later. In between the script is asked to stop for its limit.
late() {
	local node script
	node=$(host 1)
	script=$(pgrep -f "slurm_script $config --run-dir $name.run" | head -n 1)
	freeze STOP "$node"
	"$@"
	sleep 1
	kill -USR1 "$script"
	sleep 4
	freeze CONT "$node"
}
t_scancel_late() {
	HOLD=15 submit -- --set train.steps=40
	reach 15
	hurt late scancel "$id"
	back 'dynmo ended with status 85'
	ends 60 'CANCELLED 85:0'
	lacks 'requeued'
}
# The job is cancelled when its ranks have stopped already, and it is about to be requeued.
t_scancel_at_requeue() {
	mkdir -p "$name.bin"
	# shellcheck disable=SC2016 # expanded by the script that it writes
	printf '#!/bin/sh\n[ "$1" != requeue ] || scancel "$SLURM_JOB_ID"\nexec %s "$@"\n' "$(command -v scontrol)" >"$name.bin/scontrol"
	chmod +x "$name.bin/scontrol"
	PATH=$work/$name.bin:$PATH HOLD=15 submit -- --set train.steps=40
	reach 15
	scancel --batch --signal=USR1 "$id"
	ends 60 'CANCELLED 85:0'
	sleep 35 # a requeued job waits for 30 s
	[ "$(state)" = 'CANCELLED 85:0' ] || problem "came back as $(state)"
	once 'start 1 of job'
}
t_srun_ends_early() {
	QUIT=15 submit -- --set train.steps=40
	ends 60 'COMPLETED 0:0'
	says 'the launcher ended with status 0, but' && says 'start 2 of job' && says 'stub: from step 10'
}
# srun does not hear that its step is gone, as where slurmctld cannot reach srun's host.
t_srun_hears_nothing() {
	mkdir -p "$name.bin"
	# shellcheck disable=SC2016 # expanded by the script that it writes
	printf '#!/bin/bash\n%s "$@"\nstatus=$?\ncase "$*" in *" train "*) [ $status = 0 ] || exec sleep 1000 ;; esac\nexit $status\n' "$(command -v srun)" >"$name.bin/srun"
	chmod +x "$name.bin/srun"
	PATH=$work/$name.bin:$PATH HOLD=15 submit -- --set train.steps=40
	reach 15
	sleep 12 # the script has seen the step
	hurt kill -KILL "$(rank 2)"
	back 'srun waits for a step that is gone'
	ends 120 'COMPLETED 0:0'
	says 'start 2 of job'
}
t_srun_ends_early_for_good() {
	MAX_RESTARTS=0 QUIT=15 submit -- --set train.steps=40
	ends 60 'FAILED 1:0'
}
t_finished_before() {
	submit -- --set train.steps=20
	ends 60 'COMPLETED 0:0'
	submit -- --set train.steps=20
	ends 60 'COMPLETED 0:0'
	says "start 1 of job $id:" && lacks 'start 2 of job' && says 'stub: from step 20'
}
t_export_none() {
	printf 'export FROM_SITE=yes\n' >"$name.sh"
	SITE=../../../../../../../../../$work/$name submit --export=DYNMO,SITE,MPI -- --set train.steps=10
	ends 60 'COMPLETED 0:0'
	says 'stub: , site yes'
}
t_other_mpi() {
	MPI=pmi2 SRUN_OPTS='--label --unbuffered' submit -- --set train.steps=10
	ends 60 'COMPLETED 0:0'
	says '0: stub: from step 0'
}
t_no_such_mpi() {
	MPI=openmpi submit --
	ends 60 'FAILED 2:0'
	says 'srun has no --mpi=openmpi, only: ' && says 'pmi2' && says 'Set MPI in' && lacks 'start 1'
}
# The folder of the scripts is found in the output of scontrol, of every version. The text of
# 22.05 was recorded; the others follow the format strings of Slurm's sources.
t_versions() {
	local version
	log=$work/$name.log
	mkdir -p "$name.bin" "$name.run/ckpt/step_1"
	printf '[parallel]\nstages = 2\n' >"$name.run/config.toml"
	for script in train grow; do
		cp "$jobs/$script.sbatch" "$name.bin/slurm_script"
		for version in "$jobs"/testdata/scontrol/*; do
			printf '#!/bin/sh\nsed "s|JOBS|%s|;s|SCRIPT|%s|;s|RUN|%s|" %s\n' "$jobs" "$script" "$name.run" "$version" >"$name.bin/scontrol"
			chmod +x "$name.bin/scontrol"
			PATH=$work/$name.bin:$PATH SITE=nowhere SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=$work SLURM_JOB_NUM_NODES=1 \
				bash "$name.bin/slurm_script" "$name.run" >"$log" 2>&1
			[ $? = 2 ] || problem "$script, Slurm ${version##*/}: status is not 2"
			says "SITE=nowhere: no file $jobs/env/nowhere.sh"
		done
	done
}
t_sweep() {
	local first
	printf '%s\n' '--set train.steps=10' "--set train.steps=20 --set 'data.path=a b.txt' --set \"run.name=x\"" '--set "run.name=' >sweep.txt
	SWEEP=sweep.txt submit --array=1-2 --
	log=$work/$name.log first=$id
	for task in 1 2; do
		id=${first}_$task
		ends 60 'COMPLETED 0:0'
	done
	says 'at step 10' && says 'at step 20' && says 'stub: data.path=a b.txt'
	SWEEP=sweep.txt submit --array=3 --
	id=${id}_3
	ends 60 'FAILED 2:0'
	says 'a quote in line 3 has no end'
	SWEEP=absent.txt submit --array=1 --
	id=${id}_1
	ends 60 'FAILED 2:0'
	says 'SWEEP=absent.txt: no such file'
}
t_too_few_places() {
	submit --nodes=1 --ntasks-per-node=2 --
	ends 60 'FAILED 2:0'
	says 'want --nodes=2, or --set parallel.stages=2'
}
t_gpus() {
	local ask
	for ask in --gpus-per-node=2 --gres=gpu:2 --gpus=6 --gpus-per-task=1; do
		submit --nodes=3 --ntasks-per-node=2 "$ask" -- --set device.kind=cuda --set parallel.stages=6 --set train.steps=10
		ends 60 'COMPLETED 0:0'
		says '6 ranks on 3 nodes'
		rm -r "$name.run"
	done
	submit --nodes=3 --ntasks-per-node=2 --gres=gpu -- --set device.kind=cuda --set parallel.stages=3 --set train.steps=10
	ends 60 'COMPLETED 0:0'
	says '3 ranks on 3 nodes'
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

t_release() {
	local nodes
	HOLD=15 RELEASE=15:1,3 submit --nodes=4 --ntasks-per-node=1 -- --set train.steps=40
	reach 1
	nodes="$(host 2),$(host 4)"
	reach 15
	gone_after 20 "$nodes"
	sleep 50 # the watch of lost nodes looks every 30 s, and waits for 15
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
# The job keeps its batch host, although no rank of the next start is on it.
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
