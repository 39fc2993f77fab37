# Tests of grow.sbatch with the stand-in for dynmo. jobs/test-slurm.sh reads this file.

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
# The run has the stages of its first start again, not the fewer of its last start.
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
	first=$(sbatch --parsable --uid=daemon --chdir=/ --output=/dev/null --wrap 'sleep 3600')
	echo "{\"job\":\"$first\"}" >"$name.run/run.lock"
	grow 1 "$name.run"
	ends 60 'FAILED 2:0'
	says "$name.run belongs to job $first of daemon"
	scancel "$first"
}
