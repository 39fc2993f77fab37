#!/usr/bin/env bash
# Tests train.sbatch and grow.sbatch, and dynmo under srun, on clusters of this host's own.
#
#   jobs/test-slurm.sh          all tests, a quarter of an hour on two idle cores
#   jobs/test-slurm.sh WORD     tests with the word in their names
#   jobs/test-slurm.sh --smoke  one short run that gives nodes back, without slurmdbd
#
# Each test prints a line: the fault, the seconds of the job, its end, and the time from the
# fault until the job went on or had stopped. Most tests run testdata/dynmo, which stands in
# for dynmo and counts steps. Tests whose names begin with dynmo, pack, bare, node, health or
# smoke run bin/dynmo. node and health slow nodes by control groups, as root, on an idle host. A test that sets
# fault prints one more line, FAULT. recover is the time from the fault until the log says
# that the job goes on or has stopped. lost_steps is the number of recorded steps that were
# run again.
set -uo pipefail
jobs=$(cd "$(dirname "$0")" && pwd)
only=${1:-}
[ "$only" != --smoke ] || only=smoke

export DYNMO_CLUSTER
work=$(mktemp -d)
chmod 755 "$work" # munged wants its socket within reach of all
DYNMO_CLUSTER=$work/cluster
trap 'kill "$pace" 2>/dev/null; "$jobs/test-cluster.sh" down 2>/dev/null; drop_groups; rm -rf "$work"' EXIT
real=$(cd "$jobs/.." && pwd)/bin/dynmo
# shellcheck source=bench/mpi.sh
. "$jobs/../bench/mpi.sh"
mpi_environment
export SLURM_PMIX_FENCE=ring           # of the tests that call srun themselves; see train.sbatch
cd "$work" || exit 1
for file in job train grow dynmo pack node; do
	# shellcheck source=/dev/null # each is checked by itself
	. "$jobs/testdata/$file.sh"
done

t_shellcheck() {
	command -v shellcheck >/dev/null || return 0
	log=$work/$name.log
	(cd "$jobs/.." && shellcheck -x jobs/*.sh jobs/*.sbatch jobs/env/*.sh jobs/testdata/dynmo &&
		shellcheck -s bash -e SC2034,SC2154 jobs/testdata/*.sh) >"$log" || problem 'shellcheck has findings'
}

# test_one NAME: runs a test, and prints its line.
test_one() {
	local problems=() began=$SECONDS recovered='' verdict=PASS fault='' more=''
	# shellcheck disable=SC2034 # config is what submit takes
	name=$1 id='' log='' config=run.toml
	export DYNMO=$jobs/testdata/dynmo MPI=$stub_mpi
	! is_real "$name" || MPI=$real_mpi
	"t_$name"
	[ ${#problems[@]} = 0 ] || verdict=FAIL
	[ -z "$recovered" ] || recovered="$((recovered / 10)).$((recovered % 10))"
	printf '%s  %-30s %4d s  %-14s  %s\n' "$verdict" "$name" $((SECONDS - began)) "${id:+$(state)}" "${recovered:+after $recovered s}"
	[ -z "$fault" ] || printf 'FAULT %s slurm=%s %s%s%s\n' "$fault" "$name" "$verdict" "${recovered:+ recover=${recovered}s lost_steps=$(lost)}" "${more:+ $more}"
	[ $verdict = FAIL ] || return 0
	printf '      %s\n' "${problems[@]}"
	sed 's/^/      | /' "$log"
}

# cluster NODES [--no-accounting]: starts the next cluster in place of the last.
cluster() {
	"$jobs/test-cluster.sh" down 2>/dev/null
	"$jobs/test-cluster.sh" up "$@" || exit 1
	eval "$("$jobs/test-cluster.sh" env)"
	choose_launchers
}

is_real() { [[ $1 =~ ^(dynmo|pack|bare|node|health|smoke) ]]; }

# choose_launchers sets stub_mpi and real_mpi, the values of MPI for train.sbatch: pmix where this
# Slurm has it. Else Open MPI wants mpirun, and MPICH pmi2. It leaves out the tests that need pmix.
choose_launchers() {
	local without about types
	stub_mpi=pmix real_mpi=pmix
	about=$("$real" doctor 2>/dev/null)
	types=$(srun --mpi=list 2>&1)
	grep -qw pmix <<<"$types" || stub_mpi=pmi2 real_mpi=mpirun
	! grep -qE '^mpi +[a-z]+ +MPICH' <<<"$about" || real_mpi=pmi2
	[ "$real_mpi" != pmix ] || return 0
	without=$(grep -E "^(dynmo_(missing|scaling|$real_mpi\$)|pack_(releases|node|kill|grow)|bare|node|health)" <<<"$names" | paste -sd ' ')
	[ -z "$without" ] || echo "SKIP  $without: bin/dynmo starts by $real_mpi here, and they want srun --mpi=pmix"
	names=$(grep -vxFf <(tr ' ' '\n' <<<"$without") <<<"$names")
}

# together N: runs the tests of input, N side by side.
together() {
	local started=()
	while read -r each; do
		test_one "$each" >"$work/$each.out" 2>&1 </dev/null &
		started+=($!)
		[ ${#started[@]} -lt "$1" ] || { wait "${started[0]}"; started=("${started[@]:1}"); }
	done
	[ ${#started[@]} = 0 ] || wait "${started[@]}"
}

# in_turn: runs the tests of input one by one, because they compute much.
in_turn() {
	while read -r each; do
		test_one "$each" >"$work/$each.out" 2>&1 </dev/null
	done
}

names=$(declare -F | sed -n 's/^declare -f t_//p' | grep -F -- "$only")
[ "$only" = smoke ] || names=$(grep -v '^smoke' <<<"$names")
named() { [ -n "$names" ] && grep "^$1" <<<"$names"; }
others() { [ -n "$names" ] && grep -vE '^(dynmo|pack|bare|node|health|smoke)' <<<"$names"; }
if ! "$real" version >/dev/null 2>&1; then
	names=$(others)
	echo 'SKIP  dynmo*, pack*, bare*, node*, health*, smoke*: no bin/dynmo'
fi

write_settings
echo 10 >pace
measure_pace &
pace=$!
if named smoke >/dev/null; then
	cluster 4 --no-accounting
	in_turn < <(named smoke)
fi
if named 'dynmo\|pack' >/dev/null || others >/dev/null; then
	accounting=()
	if ! "$jobs/test-cluster.sh" need >/dev/null; then
		echo 'SKIP  pack_releases: no slurmdbd or MariaDB'
		names=$(grep -v '^pack_releases' <<<"$names")
		accounting=(--no-accounting)
	fi
	cluster 20 "${accounting[@]}"
	together 100 < <(others)
	! named dynmo >/dev/null || undisturbed
	together 4 < <(named dynmo) # whose ranks compute
	in_turn < <(named pack)
fi
if named bare >/dev/null; then
	cluster 8 --no-accounting
	in_turn < <(named bare)
fi
if named 'node\|health' >/dev/null && ! groups_work; then
	echo 'SKIP  node*, health*: no control groups of cores to write (root, cgroup v1 or v2)'
	names=$(grep -vE '^(node|health)' <<<"$names")
fi
if named 'node_slow\|health' >/dev/null && ! at_rest; then
	echo 'SKIP  node_slow, health*: this host is busy, and dynmo does not judge nodes that others use'
	names=$(grep -vE '^(node_slow|health)' <<<"$names")
fi
if named node >/dev/null; then
	cluster 8 --no-accounting
	in_turn < <(named node)
fi
if named health >/dev/null; then
	write_health
	cluster 4 --no-accounting --health "$work/health"
	in_turn < <(named health)
fi
cat "$work"/*.out
passed=$(cat "$work"/*.out | grep -c ^PASS)
failed=$(cat "$work"/*.out | grep -c ^FAIL)
echo "$passed passed, $failed failed, in $SECONDS s"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
