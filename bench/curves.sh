#!/usr/bin/env bash
# Validation losses of small jobs whose model changes while it trains, beside the
# same model without the change: after as many steps, and after as much time in steps, the
# dense one's loss on a straight line between two measurements. One rank, one after the
# other; time is the CPU time of its thread, so that other programs do not change it. Needs
# bin/dynmo (./build.sh build), or another as BIN. Names of curves choose some.
#
#   bench/curves.sh [NAME...] >results/curves.txt
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/curves
rm -rf "$dir"

# losses RUN prints, for each step that was validated: steps done, seconds in steps, loss.
losses() {
	awk -F '[,{}]' '
		{
			loss = ""
			for (i = 1; i <= NF; i++) {
				if ($i ~ /^"step_seconds":/) seconds += substr($i, 16)
				if ($i ~ /^"step":/) step = substr($i, 8) + 1
				if ($i ~ /^"validation_loss":/) loss = substr($i, 19)
			}
			if (loss != "") print step, seconds, loss
		}' "$1/metrics.jsonl"
}

# validate JOB NAME SETTING... trains a job, unless it is there, and notes its losses.
validate() {
	local job=$1 name=$2
	shift 2
	[ ! -e "$dir/$name.txt" ] || return 0
	"${BIN:-bin/dynmo}" train "jobs/$job.toml" --set parallel.stages=1 --set parallel.replicas=1 --set run.clock=virtual --set balance.kind=uniform \
		--set data.validation=0.05 --set train.validate_every=50 --set checkpoint.every=never "${@/#/--set=}" --run-dir "$dir/$name" >&2
	losses "$dir/$name" >"$dir/$name.txt"
}

chosen=" $* " first=true
printf 'command: bench/curves.sh%s\n' "${*:+ $*}"

# curve NAME JOB SETTING... prints the losses of a job with settings, if it is chosen.
curve() {
	local name=$1 job=$2
	shift 2
	[ "$chosen" = '  ' ] || [[ $chosen == *" $name "* ]] || return 0
	validate "$job" "$name" "$@"
	validate "$job" "$job-dense" dynamic.kind=none
	if $first; then
		sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$dir/$name/provenance.json"
		printf 'note: losses of the validation data, 5 %% of the corpus; seconds of clock=virtual\n'
		first=false
	fi
	printf '\n%s: jobs/%s.toml%s\n%6s %10s %10s %10s %15s\n' "$name" "$job" "${*:+ $*}" steps seconds loss dense 'dense, as long'
	awk '
		NR == FNR { t[++n] = $2; loss[n] = $3; next }
		{
			same = "-"
			for (i = 2; i <= n; i++)
				if (t[i - 1] <= $2 && $2 <= t[i]) same = sprintf("%.4f", loss[i - 1] + (loss[i] - loss[i - 1]) * ($2 - t[i - 1]) / (t[i] - t[i - 1]))
			printf "%6d %10.2f %10.4f %10.4f %15s\n", $1, $2, $3, loss[FNR], same
		}' "$dir/$job-dense.txt" "$dir/$name.txt"
}

curve freezing freezing
curve sparse-attention sparse-attention
curve early-exit early-exit
curve mod mod
curve pruning early-exit dynamic.kind=prune prune.start=100 prune.every=25 prune.times=4 prune.final=0.9
curve layerdrop early-exit dynamic.kind=layerdrop layerdrop.gamma=0.01
curve moe moe-llama
