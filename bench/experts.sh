#!/usr/bin/env bash
# Validation losses of a small mixture of experts, spread over four replicas, at equal time in
# steps: with a loss that balances experts, with S-BASE, and with neither, with and without
# copies. All four train beside one another, so that other programs slow all of them; time is
# CPU time of their threads. Needs bin/dynmo (./build.sh build), or another as BIN.
#
#   bench/experts.sh >results/experts.txt
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/experts bin=${BIN:-bin/dynmo}
rm -rf "$dir"
names=(aux s-base none copies)
shared=(parallel.stages=1 parallel.replicas=4 'parallel.experts="spread"' parallel.microbatches=1 parallel.microbatch_size=8 model.blocks=8
	moe.block_rows=32 moe.spare=1 run.clock=virtual balance.kind=uniform train.validate_every=25 checkpoint.every=never)
of() {
	case $1 in
	aux) echo moe.placing=even ;;
	s-base) echo moe.placing=even moe.balance=s-base ;;
	none) echo moe.placing=even moe.aux=0 ;;
	copies) echo moe.aux=0 ;;
	esac
}
for name in "${names[@]}"; do
	set --
	for s in "${shared[@]}" $(of "$name"); do set -- "$@" --set "$s"; done
	OPENBLAS_NUM_THREADS=1 "$bin" train jobs/moe-mixtral.toml "$@" --run-dir "$dir/$name" >&2 &
done
wait
printf 'command: bench/experts.sh\n'
sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$dir/copies/provenance.json"
printf 'note: jobs/moe-mixtral.toml with %s\n' "${shared[*]}"
printf 'note: aux: moe.aux = 0.02; s-base: moe.balance = s-base; none: moe.aux = 0; copies: none, with moe.placing = copies. The others have moe.placing = even\n'
printf 'note: the fullest replica: its work over its even share, mean over layers and steps\n\n'
printf '%-8s %10s %16s %10s\n' '' seconds 'fullest replica' loss
for name in "${names[@]}"; do
	full=$("$bin" report "$dir/$name" -o - | grep -o 'fullest replica had [0-9.]* times its even share of the work, without' | grep -o '[0-9.]* times')
	awk -F '[,{}]' -v name="$name" -v full="${full% times}" -v out="$dir/$name.txt" '
		{
			loss = ""
			for (i = 1; i <= NF; i++) {
				if ($i ~ /^"step_seconds":/) seconds += substr($i, 16)
				if ($i ~ /^"validation_loss":/) loss = substr($i, 19)
			}
			if (loss != "") { print seconds, loss >out; last = loss }
		}
		END { printf "%-8s %10.2f %16s %10.4f\n", name, seconds, full, last }' "$dir/$name/metrics.jsonl"
done
printf '\nlosses after as many seconds\n%8s' seconds
printf ' %10s' "${names[@]}"
echo
for name in "${names[@]}"; do sed "s/^/$name /" "$dir/$name.txt"; done | awk '
	{ n[$1]++; t[$1, n[$1]] = $2; loss[$1, n[$1]] = $3; if (n[$1] == 1) order[++runs] = $1 }
	END {
		for (r = 1; r <= runs; r++) { s = t[order[r], n[order[r]]]; if (r == 1 || s < end) end = s }
		for (k = 2; k <= 10; k++) {
			at = end * k / 10
			printf "%8.2f", at
			for (r = 1; r <= runs; r++) {
				o = order[r]; same = "-"
				for (i = 2; i <= n[o]; i++)
					if (t[o, i-1] <= at && at <= t[o, i]) same = sprintf("%.4f", loss[o, i-1] + (loss[o, i] - loss[o, i-1]) * (at - t[o, i-1]) / (t[o, i] - t[o, i-1]))
				printf " %10s", same
			}
			print ""
		}
	}'
