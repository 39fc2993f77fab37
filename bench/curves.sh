#!/usr/bin/env bash
# Validation losses of the four small jobs whose model changes while it trains, beside the
# same model without the change: after as many steps, and after as much time in steps, the
# dense one's loss on a straight line between two measurements. One rank, one after the
# other; time is the CPU time of its thread, so that other programs do not change it. Needs bin/dynmo (./build.sh build), or another as BIN.
#
#   bench/curves.sh >results/curves.txt
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

printf 'command: bench/curves.sh\n'
for job in freezing sparse-attention early-exit mod; do
	for kind in own none; do
		set -- --set parallel.stages=1 --set run.clock=virtual --set balance.kind=uniform --set data.validation=0.05 --set train.validate_every=50 --set checkpoint.every=never
		[ "$kind" = own ] || set -- "$@" --set dynamic.kind=none
		"${BIN:-bin/dynmo}" train "jobs/$job.toml" "$@" --run-dir "$dir/$job-$kind" >&2
		losses "$dir/$job-$kind" >"$dir/$job-$kind.txt"
	done
	if [ "$job" = freezing ]; then
		sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$dir/$job-own/provenance.json"
		printf 'note: losses of the validation data, 5 %% of the corpus; seconds of clock=virtual\n'
	fi
	printf '\njobs/%s.toml\n%6s %10s %10s %10s %15s\n' "$job" steps seconds loss dense 'dense, as long'
	awk '
		NR == FNR { t[++n] = $2; loss[n] = $3; next }
		{
			same = "-"
			for (i = 2; i <= n; i++)
				if (t[i - 1] <= $2 && $2 <= t[i]) same = sprintf("%.4f", loss[i - 1] + (loss[i] - loss[i - 1]) * ($2 - t[i - 1]) / (t[i] - t[i - 1]))
			printf "%6d %10.2f %10.4f %10.4f %15s\n", $1, $2, $3, loss[FNR], same
		}' "$dir/$job-none.txt" "$dir/$job-own.txt"
done
