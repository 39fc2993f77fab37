# Tests of node_bench.sbatch and health.sh on nodes of this host, some of them slowed to half by
# a control group. jobs/test-slurm.sh reads this file.

# groups is the folder of control groups for CPU time; v is their version.
groups='' v=''
groups_work() {
	if [ -w /sys/fs/cgroup/cpu/cpu.shares ]; then
		groups=/sys/fs/cgroup/cpu v=1
	elif grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
		groups=/sys/fs/cgroup v=2
	fi
	[ -n "$groups" ] && mkdir "$groups/dynmo-test-$$" 2>/dev/null
}
drop_groups() {
	local group
	[ -n "$groups" ] || return 0
	for group in "$groups/dynmo-test-$$"-node* "$groups/dynmo-test-$$"; do
		rmdir "$group" 2>/dev/null
	done
}

# node_group NODE QUOTA: puts all processes of a node into a control group. The group may use
# QUOTA microseconds of CPU time in each 100,000, or "max". Its weight is the largest: other
# processes of this host then take next to nothing from the nodes.
node_group() {
	local group="$groups/dynmo-test-$$-$1" pid
	mkdir -p "$group"
	if [ "$v" = 1 ]; then
		echo 262144 >"$group/cpu.shares"
		echo "${2/max/-1}" >"$group/cpu.cfs_quota_us"
	else
		echo 10000 >"$group/cpu.weight"
		echo "$2 100000" >"$group/cpu.max"
	fi
	for pid in $(family "$(cat "$DYNMO_CLUSTER/pids/$1")"); do
		echo "$pid" >"$group/cgroup.procs"
	done
}
# family PID: prints a process and all below it.
family() {
	local child
	echo "$1"
	for child in $(pgrep -P "$1"); do family "$child"; done
}

# node_core NODE: gives a node the last core of this host alone. dynmo watches what others take of the
# cores that it may use, and the weight of the node's group keeps others from this one.
node_core() {
	local pid
	for pid in $(family "$(cat "$DYNMO_CLUSTER/pids/$1")"); do
		taskset -apc "$(($(nproc) - 1))" "$pid" >/dev/null
	done
}

# at_rest: whether this host has next to nothing else to do for five seconds. A node that is slowed by
# a quota leaves time to others, and a node that others use is not judged.
at_rest() {
	local before
	before=$(used_ticks)
	sleep 5
	[ $(($(used_ticks) - before)) -lt 50 ] # a tenth of a core
}
used_ticks() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }

# measuring NODE... begins to measure all nodes in turn, with the NODEs slowed to half. measured
# does that and waits for the verdict. A node's /dev/shm is its own: on a disk files would wait, and
# others would use the core.
measuring() {
	local i
	for i in {1..8}; do node_group "node$i" max && node_core "node$i"; done
	for i in "$@"; do node_group "$i" 50000; done
	log=$work/$name.log
	id=$(DYNMO=$real sbatch --parsable --nodes=8 --output="$log" "$jobs/node_bench.sbatch" --in-turn \
		--threads 1 --folder /dev/shm ${drain:+--drain})
}
measured() {
	measuring "$@"
	within 400 over || problem "not over after 400 s"
}

# One node of eight is slow, five times. The last slow node is drained.
t_node_slow() {
	local slow found=0 drain=''
	for slow in node2 node5 node1 node8 node4; do
		[ "$slow" != node4 ] || drain=yes
		measured "$slow"
		if grep -qx "1 of 8 nodes slow or faulty: $slow" "$log"; then
			found=$((found + 1))
		else
			problem "slowed $slow: $(grep -E 'nodes slow or faulty|none slow' "$log")"
		fi
		cp "$log" "$work/$slow.table" && cp "node_bench_$id/page.html" "${DYNMO_SHOW:-$work}/"
	done
	more="named=$found/5"
	sinfo -h -N -n node4 -o '%T %E' | grep -q '^drain[a-z]* dynmo: [a-z0-9_]* [0-9]* % of the speed of its peers' || problem "node4: $(sinfo -h -N -n node4 -o '%T %E')"
	cat "$work/node4.table" >&2
}
t_node_healthy() {
	measured
	ends 10 'COMPLETED 0:0'
	says '8 nodes, none slow or faulty'
}
t_node_dies() {
	measuring
	within 120 test -e "node_bench_$id/records/node1.0.jsonl" || problem 'never began'
	crash node3
	within 400 over || problem "not over after 400 s"
	says '1 of 8 nodes slow or faulty: node3'
	"$jobs/test-cluster.sh" start node3
}

# Nodes exchange messages by MPI under srun, all at once.
t_node_messages() {
	local i status
	for i in {1..8}; do node_group "node$i" max; done
	log=$work/$name.log
	id=$(DYNMO=$real sbatch --parsable --nodes=4 --output="$log" "$jobs/node_bench.sbatch" --small --threads 1 --folder "$work")
	ends 300 'COMPLETED 0:0'
	says mpi_allreduce_busbw && says mpi_bandwidth_c
	timeout 300 srun --mpi=pmix --nodes=4 --cpu-bind=none "$real" bench pairs >"$work/pairs" 2>&1
	status=$?
	case $status in
	0 | 4) ;; # 4: these nodes share this host, so each can be busy with the pair of others
	*) problem "bench pairs: status $status" ;;
	esac
	cat "$work/pairs" >>"$log"
	grep -qE '^[^ ]+ +net +mpi_latency +4 ' "$work/pairs" || problem 'bench pairs measured no four nodes'
}

# write_health writes the program that slurmd runs. One node measures at a time, because all
# share this host. Checks begin once there is a reference: nodes are in their groups by then.
# slurmd ends a health check after 60 s, so a node waits for less than that.
write_health() {
	cat >"$work/health" <<-END
		#!/bin/bash
		export SLURM_CONF=$DYNMO_CLUSTER/slurm.conf DYNMO=$real DYNMO_HEALTH_ENV=/dev/null
		export DYNMO_QUICK='--threads 1 --seconds 0.3 --folder /dev/shm'
		export DYNMO_REFERENCE=$work/reference.toml
		[ ! -r $work/reference.toml ] || exec flock -w 30 $work/lock $jobs/health.sh
	END
	chmod 755 "$work/health"
}
# A healthy node stays up, a slowed one is drained with the reason.
t_health_drains_the_slow_node() {
	local i
	log=$work/$name.log
	for i in {1..4}; do node_group "node$i" max && node_core "node$i"; done
	node_group node3 50000
	srun --mpi=none --nodes=1 --nodelist=node1 --cpu-bind=none "$real" bench node --threads 1 --seconds 0.3 --folder /dev/shm \
		--write-reference "$work/reference.new" >"$log" 2>&1 || problem 'no reference'
	mv "$work/reference.new" "$work/reference.toml"
	within 200 drained node3 || problem 'node3 was not drained'
	sinfo -h -N -o '%N %T %E' | sort -u >>"$log"
	grep -q '^node3 drain[a-z]* dynmo: [a-z0-9_]* [0-9.e+]* < ' "$log" || problem 'not with the reason'
	sleep 90 # two more rounds
	for i in 1 2 4; do
		sinfo -h -n "node$i" -p test -o %T | grep -qx idle || problem "node$i is $(sinfo -h -n "node$i" -p test -o '%T %E')"
	done
}
drained() { sinfo -h -n "$1" -p test -o %T | grep -q drain; }
