#!/usr/bin/env bash
# Ways to place experts on eight real ranks: two stages of four replicas, each a process. First how
# many tokens each expert takes is forced by files (dynamic.replay); what a kernel takes is given
# (device.kernel = null), so that the load of the machine has no part in it. Messages, decisions,
# copies and moves are real, on a virtual clock. Then a model trains on text without a loss that
# balances experts. Needs bin/dynmo (./build.sh build), or another as BIN.
#
#   bench/placing.sh >results/placing-ranks.txt
set -euo pipefail
cd "$(dirname "$0")/.."
runs=build/placing
rm -rf "$runs"
mkdir -p "$runs"
experts=16 trained=8 tokens=256 blocks=4 replicas=4 microbatches=16 steps=40 warm=8
settings=(model.blocks=$blocks model.hidden=128 model.sequence=64 model.intermediate=448
	moe.block_rows=16 moe.spare=1 parallel.stages=2 parallel.replicas=$replicas 'parallel.experts="spread"'
	parallel.microbatches=$((microbatches / replicas)) parallel.microbatch_size=4 comm.latency_seconds=2e-5 comm.bandwidth_bytes=1e9
	run.clock=virtual balance.kind=uniform train.steps=$steps 'data.validation=""')

# Shares of experts, by block in another order, are up to 20 % others in each microbatch: equal; as 1/k;
# those of one replica four times the others; one expert eight times, another one every 10 steps; one
# expert ten times in half of the steps.
loads() {
	awk -v case="$1" -v experts=$experts -v tokens=$tokens -v blocks=$blocks -v microbatches=$microbatches -v steps=$steps -v replicas=$replicas '
		function share(k, s) {
			if (case == "zipf-1") return 1/k
			if (case == "hot-rank") return k <= experts/replicas ? 4 : 1
			if (case == "rotating") return k == 1 + int(s/10) ? 8 : 1
			if (case == "burst") return k == 1 && s%20 >= 10 ? 10 : 1
			return 1
		}
		BEGIN {
			srand(1)
			for (l = 1; l <= blocks; l++) {
				for (e = 1; e <= experts; e++) order[l, e] = e
				if (case != "hot-rank") for (e = experts; e > 1; e--) { j = 1 + int(rand()*e); t = order[l, e]; order[l, e] = order[l, j]; order[l, j] = t }
			}
			for (s = 0; s < steps; s++) for (l = 1; l <= blocks; l++) for (m = 0; m < microbatches; m++) {
				sum = 0; all = 2*tokens
				for (k = 1; k <= experts; k++) sum += w[order[l, k]] = share(k, s)*(0.8+0.4*rand())
				for (e = 1; e <= experts; e++) { n[e] = int(w[e]/sum*2*tokens); if (n[e] > tokens) n[e] = tokens; all -= n[e] }
				for (e = 1; all > 0; e = e%experts + 1) if (n[e] < tokens) { n[e]++; all-- }
				text = n[1]; for (e = 2; e <= experts; e++) text = text "," n[e]
				printf "{\"step\":%d,\"layer\":%d,\"microbatch\":%d,\"tokens\":[%s]}\n", s, l, m, text
			}
		}'
}

run() { # CASE PLACING SETTINGS
	local dir=$runs/$1-$2 args=() s
	for s in "${settings[@]}" moe.placing="${2/capacity/even}" "${@:3}"; do args+=(--set "$s"); done
	${MPIRUN:-mpirun --allow-run-as-root --oversubscribe} -n 8 "${BIN:-bin/dynmo}" train jobs/moe-mixtral.toml "${args[@]}" --run-dir "$dir" >&2
}

forced() { # CASE PLACING
	run "$1" "$2" device.kernel=null moe.experts=$experts dynamic.replay="$runs/$1.jsonl"
}

table() { # CASE EXPERTS PLACINGS
	local placing name
	printf '\n%s, %d experts, %d replicas\n%33s %9s %10s %12s %9s\n' "$1" "$2" $replicas 'ms of a step' real simulated 'off at most' 'moved'
	for placing in "${@:3}"; do
		case $placing in even) name=nothing ;; owners) name='ours, no copies' ;; copies) name=ours ;; eplb) name=EPLB ;; *) name=$placing ;; esac
		row "$name" "$runs/$1-$placing"
	done
}

# row NAME RUN prints the mean step measured and simulated, both over that of even work, and how far a
# simulated step lies off at most: of the steps behind a move, and of all others.
row() {
	awk -F '[,{}]' -v name="$1" -v even="${even:-1}" -v warm=$warm '
		function value(field, i, a) {
			for (i = 1; i <= NF; i++) { split($i, a, ":"); if (a[1] == "\"" field "\"") return a[2] }
		}
		FILENAME ~ /events/ { if (/"kind":"place"/) moved[value("step") + 1] = 1; next }
		value("step") >= warm {
			real = value("makespan"); sim = value("predicted"); reals += real; sims += sim; n++
			off = 100*(sim/real - 1); behind = value("step") in moved
			if (off*off > worst[behind]*worst[behind]) worst[behind] = off
		}
		END {
			if (name == "") print reals/n
			else printf "  %-16s %14.2f %9.3f %10.3f %10.1f %% %9s\n", name, 1e3*reals/n, reals/n/even, sims/n/even, worst[0], (1 in worst ? sprintf("%.1f %%", worst[1]) : "-")
		}' "$2/events.jsonl" "$2/metrics.jsonl"
}

loads even >$runs/even.jsonl
forced even even
even=$(row "" $runs/even-even)
printf 'command: bench/placing.sh\n'
sed -n 's/^  "\(revision\|go\|platform\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "$runs/even-even/provenance.json"
printf 'note: eight processes, clock=virtual, kernels of given speed, forced loads; the first %d of %d steps are left out\n' $warm $steps
cat <<'END'
note: real, simulated: makespan over the measured one of equal shares, where nothing moves. Shares of an expert vary by 20 % between
  microbatches in all cases, so copies, which get whole blocks by the rows that came, may be faster than that
note: off at most: the simulated makespan of a step over the measured one; moved: the same of steps behind a move
END
for case in zipf-1 hot-rank rotating burst; do
	loads $case >$runs/$case.jsonl
	for placing in even eplb owners copies; do forced $case $placing; done
	table $case $experts even eplb owners copies
done
ways=(even capacity eplb owners copies)
for placing in "${ways[@]}"; do
	extra=(moe.aux=0)
	[ $placing = capacity ] && extra+=(moe.capacity=1.25)
	run trained $placing moe.experts=$trained train.steps=28 "${extra[@]}"
done
even=$(row "" $runs/trained-even)
table trained $trained "${ways[@]}"
printf '  over the measured makespan of nothing; losses'
for placing in "${ways[@]}"; do printf ' %s %.4f' $placing "$(sed -n '$s/.*"loss":\([0-9.]*\).*/\1/p' "$runs/trained-$placing/metrics.jsonl")"; done
echo
