# The actions of tests on a job, and their checks. jobs/test-slurm.sh reads this file.

# write_settings writes the settings of jobs: run.toml and pack.toml. A run of pack.toml packs
# itself from 4 stages onto 2 as soon as it is pruned, after step 20.
write_settings() {
	head -c 100000 "$jobs/train.sbatch" >text.txt
	cat >run.toml <<-'END'
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
	cat >pack.toml <<-'END'
		[run]
		name = "pack"
		clock = "virtual"
		[model]
		blocks = 8
		hidden = 64
		heads = 4
		sequence = 32
		init = "depth-scaled"
		[data]
		path = "text.txt"
		[parallel]
		stages = 4
		replicas = 2
		microbatches = 4
		[train]
		steps = 300
		hash = true
		log_every = 1000
		[dynamic]
		kind = "prune"
		[prune]
		start = 20
		every = 20
		times = 1
		initial = 0.6
		final = 0.9
		[balance]
		kind = "partition"
		every = 10
		[repack]
		kind = "first-fit"
		stages = 2
		[checkpoint]
		every = 100
	END
}

# reference NAME ARGUMENT...: trains on one stage, without MPI, where no layer moves. It keeps
# the hash of the final weights in NAME.hash, and trains once for each name.
reference() {
	[ ! -s "$1.hash" ] || return 0
	timeout 600 "$real" train "${@:2}" --set parallel.stages=1 --run-dir "$1.run" >"$1.told" 2>&1
	hash_of "$1" >"$1.hash"
}
hash_of() { sed -n 's/^ *"hash": "\(.*\)".*/\1/p' "$1.run/summary.json"; }

# same NAME: checks that the job's final weights are those of the run NAME.
same() {
	within 5 test -s "$1.hash" || problem "no hash of the run $1"
	[ "$(hash_of "$name")" = "$(cat "$1.hash")" ] || problem "weights $(hash_of "$name"), want those of the run $1"
}

# submit OPTION... -- ARGUMENT...: submits train.sbatch with the settings $config, and sets id
# and log.
submit() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	log=$work/$name.log
	id=$(sbatch --parsable --nodes=2 --ntasks-per-node=4 --output="$log" "${options[@]}" "$jobs/train.sbatch" "$config" --run-dir "$name.run" "$@")
}

# state prints a job's state and exit status.
state() { scontrol show job -o "$id" | sed -n 's/.* JobState=\([A-Z_]*\) .* ExitCode=\([0-9:]*\).*/\1 \2/p'; }

# measure_pace keeps the slowdown of this host in the file pace, in tenths: 10 at rest, 100 at
# most. The slowdown is the wall time of a loop over its CPU time.
measure_pace() {
	local TIMEFORMAT='%R %U %S' i
	while sleep 2; do
		{ time for ((i = 0; i < 40000; i++)); do :; done; } 2>&1 |
			awk '{ pace = int(10 * $1 / ($2 + $3 + 0.001)); print (pace < 10 ? 10 : pace > 100 ? 100 : pace) }' >pace.new
		mv pace.new pace
	done
}

# within SECONDS COMMAND...: whether the command succeeds in SECONDS on a host at rest. Seconds
# count less on a busy host. In all it waits at most ten times SECONDS.
within() {
	local left=$(($1 * 10000000)) now last=${EPOCHREALTIME/./}
	shift
	until "$@"; do
		[ "$left" -gt 0 ] || return 1
		sleep 0.2
		now=${EPOCHREALTIME/./}
		left=$((left - (now - last) * 100 / $(cat "$work/pace")))
		last=$now
	done
}
over() { state 2>&1 | grep -qE '^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED) |Invalid job id'; } # or forgotten
said() { grep -qF -- "$1" "$log" 2>/dev/null; }
reach() { within 60 said_step "$1" || problem "never reached step $1"; }
said_step() { [ "$(sed -n "$1p" "$name.run/metrics.jsonl" 2>/dev/null)" ]; }

problem() { problems+=("$1"); }
ends() { # ends SECONDS "STATE STATUS": how the job has to end
	within "$1" over || problem "not over after $1 s"
	[ "$(state)" = "$2" ] || problem "ended as $(state), want $2"
}
says() { said "$1" || problem "the log lacks: $1"; }
lacks() { ! said "$1" || problem "the log has: $1"; }
once() {
	local n
	n=$(grep -cF -- "$1" "$log")
	[ "$n" = 1 ] || problem "$n times in the log, want once: $1"
}
# On a busy host ranks that compete for its cores may be silent for long. Tests that kill no
# rank therefore have a long deadline.
patient=(--set comm.deadline_seconds=60)

# A job of testdata/dynmo with HOLD=STEP waits at that step until `back` lets it go on, so no
# test has to be fast. bin/dynmo gets enough steps.
#
# hurt COMMAND...: hurts the job. Then `back TEXT` waits for TEXT, the answer, in the log, and
# keeps the time in between, in tenths of a second, as recovered.
hurt() {
	began_hurt=${EPOCHREALTIME/./}
	"$@" || problem "failed: $*"
}
back() { # a job that nobody could hurt has no answer
	[ ${#problems[@]} != 0 ] || within 120 said "$1" || problem "the log never said: $1"
	recovered=$(((${EPOCHREALTIME/./} - began_hurt) / 100000))
	: >"$name.run/go"
}
host() { squeue -h -j "$id" -o %N | xargs scontrol show hostnames | sed -n "$1p"; }
rank() { # rank R: prints the process of a rank, which slurmstepd or mpirun has started
	within 20 one_rank "$1"
}
one_rank() {
	local pid parent variable
	for pid in $(pgrep -f "train $config --run-dir $name.run"); do
		parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
		case $(cat "/proc/$parent/comm" 2>/dev/null) in
		slurmstepd) variable=SLURM_PROCID ;;
		mpirun | prterun | orted | prted) variable=OMPI_COMM_WORLD_RANK ;;
		*) continue ;;
		esac
		if tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "$variable=$1"; then
			echo "$pid"
			return
		fi
	done
	return 1
}

# twice SIGNAL: sends the ranks a signal, and again 5 ms later if they still run.
twice() {
	scancel --signal="$1" "$id" || return
	sleep 0.005
	scancel --quiet --signal="$1" "$id" || true
}
# preempt starts an urgent job that takes the job's nodes, for a second.
preempt() {
	sbatch --quiet --partition=urgent --exclusive --nodelist="$(squeue -h -j "$id" -o %N)" --output=/dev/null --wrap 'sleep 1'
}
down() { scontrol update NodeName="$1" State=DOWN Reason=test; }
crash() { "$jobs/test-cluster.sh" kill "$1"; }
# freeze SIGNAL NODE: STOP stops the node's slurmd, CONT lets the slurmd go on.
freeze() {
	pgrep -f "^slurmd -D -N $2\$" | while read -r pid; do # other clusters have nodes of that name
		! tr '\0' '\n' <"/proc/$pid/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF" || kill "-$1" "$pid"
	done
}

# gone_after SECONDS LIST: checks that the nodes of LIST (node1,node2) are idle in SECONDS.
gone_after() { within "$1" idle "$2" || problem "not idle after $1 s: $2"; }
idle() { [ "$(sinfo -h -N -n "$1" -p test -o %T | sort -u)" = idle ]; }
