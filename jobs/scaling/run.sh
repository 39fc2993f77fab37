#!/usr/bin/env bash
# Submits the runs behind one figure of the scaling study as an array of jobs, one task a run,
# and a job behind them that sets the runs side by side (dynmo table), and keeps them in
# results/executed, where dynmo figures draws them.
#
#   jobs/scaling/run.sh fig3 --nodes 90 --gpus 4                 # 720 GPUs, 24 stages x 15
#   jobs/scaling/run.sh fig8 --nodes 240 --gpus 4 --stages 24
#   for nodes in 1 2 4 8; do jobs/scaling/run.sh fig8 --nodes $nodes --ranks 4 --stages 8 --config jobs/pruning.toml; done
#   jobs/scaling/run.sh table1 --nodes 90 --gpus 8 --test-only   # asks Slurm whether it could start
#
# FIGURE is one of the *.sweep files beside this script: a line is one run's arguments.
#
#   --nodes N      nodes of each run (default 1)
#   --gpus N       GPUs, and ranks, of each node
#   --ranks N      ranks of each node without GPUs (default 4)
#   --stages N     stages of the pipeline (default 24, or all ranks if they are fewer)
#   --time T       limit of a run (default 04:00:00)
#   --at-once N    runs that go side by side (default 1)
#   --config FILE  settings of the model (default jobs/gpu-24l.toml)
#   --results DIR  folder of results (default that of this checkout)
#   --test-only    as of sbatch: nothing is submitted
#   -- ARGUMENTS   more arguments of every run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)

fail() { printf 'run.sh: %s\n' "$*" >&2; exit 2; }
[ $# -gt 0 ] || { sed -n '2,22s/^# \?//p' "$0"; exit 2; }
made="jobs/scaling/run.sh $*"
figure=$1 results=$top/results nodes=1 gpus=0 ranks=4 stages=24 limit=04:00:00 at_once=1 config=$top/jobs/gpu-24l.toml test=()
shift
sweep=$here/$figure.sweep
[ -f "$sweep" ] || fail "$figure: want one of $(cd "$here" && printf '%s ' *.sweep | sed 's/\.sweep//g')"
while [ $# -gt 0 ]; do
	case $1 in
	--test-only) test=(--test-only) ;;
	--) shift; break ;;
	--nodes | --gpus | --ranks | --stages | --time | --at-once | --config | --results)
		[ $# -gt 1 ] || fail "$1: want a value"
		case $1 in
		--nodes) nodes=$2 ;; --gpus) gpus=$2 ;; --ranks) ranks=$2 ;; --stages) stages=$2 ;;
		--time) limit=$2 ;; --at-once) at_once=$2 ;; --config) config=$2 ;;
		--results) results=$2 ;;
		esac
		shift
		;;
	*) fail "$1: unknown, want an option of its head; arguments of runs stand behind --" ;;
	esac
	shift
done
[ -f "$config" ] || fail "--config $config: no such file"
[ "$gpus" = 0 ] || ranks=$gpus
all=$((nodes * ranks))
[ "$stages" -le "$all" ] || stages=$all
[ $((all % stages)) = 0 ] || fail "$nodes nodes of $ranks ranks: want a multiple of $stages stages"
runs=$(grep -c . "$sweep")

options=(--nodes="$nodes" --ntasks-per-node="$ranks" --time="$limit")
[ "$gpus" = 0 ] || options+=(--gpus-per-node="$gpus" --cpus-per-task=8)
mesh=(--set "parallel.stages=$stages" --set "parallel.replicas=$((all / stages))" --set "parallel.microbatches=$((4 * stages))")
export SWEEP=$sweep
if [ ${#test[@]} -gt 0 ]; then
	exec sbatch --test-only --array="1-$runs%$at_once" "${options[@]}" "$top/jobs/train.sbatch" "$config" "${mesh[@]}" "$@"
fi
id=$(sbatch --parsable --job-name="$figure" --array="1-$runs%$at_once" --output=%x_%A_%a.log "${options[@]}" "$top/jobs/train.sbatch" "$config" "${mesh[@]}" "$@")
id=${id%%;*}
printf '%s: %d runs of %d stages x %d replicas are job %s\n' "$figure" "$runs" "$stages" "$((all / stages))" "$id"
dirs=()
for ((run = 1; run <= runs; run++)); do dirs+=("runs/job-${id}_$run"); done
dynmo=$(printf %q "${DYNMO:-$top/bin/dynmo}")
collect=true
case $figure in # fig4 packs: its runs are in the table alone
fig3 | fig7 | fig8 | table1) collect="$dynmo figures --results $(printf %q "$results") --collect $figure-$all-ranks --made-by $(printf %q "$made") ${dirs[*]}" ;;
esac
sbatch --parsable --job-name="$figure-table" --dependency="afterany:$id" --nodes=1 --ntasks=1 --time=00:10:00 \
	--output="$figure-$id.txt" --wrap "$collect; $dynmo table ${dirs[*]}" >/dev/null
printf 'their table will be %s-%s.txt\n' "$figure" "$id"
