#!/usr/bin/env bash
# Loads from files (dynamic.replay), executed on real ranks and simulated. Each kind has a run on
# uniform cuts and a run whose layers move. There are 24 blocks and a stage for each rank; with
# experts 12 blocks and half as many stages. Loads change in steps 6 and 14. Ranks are goroutines,
# times are virtual. Needs bin/dynmo (./build.sh build).
#
#   bench/replayed.sh 8 > results/replayed.txt
#   bench/replayed.sh 24 > results/replayed-24.txt
#   bench/replayed.sh 8 attention prune    # some kinds
set -euo pipefail
cd "$(dirname "$0")/.."

ranks=${1:-8}
shift || true
kinds=(prune freeze attention exit mod moe)
[ $# = 0 ] || kinds=("$@")
runs=build/replayed-$ranks
rm -rf "$runs"
mkdir -p "$runs"
microbatches=16 tokens=128
settings=(jobs/pruning-24.toml --set run.name=replayed --set model.init=gpt2 --set "parallel.microbatches=$microbatches" --set "parallel.stages=$ranks" --set train.steps=24 --set balance.every=3)

# prune: block l keeps erfc(t·sqrt((l+1)/2)), as results/workloads/prune.toml assumes of its main case.
loads_prune() {
	awk 'function erfc(x, t) { # Abramowitz & Stegun 7.1.26
			t = 1/(1+0.3275911*x)
			return t*(0.254829592+t*(-0.284496736+t*(1.421413741+t*(-1.453152027+t*1.061405429))))*exp(-x*x)
		}
		function all(t, l, sum) { for (l = 1; l <= 24; l++) sum += erfc(t*sqrt(l/2)); return sum/24 }
		BEGIN {
			split("6 14", steps); split("0.21 0.1", kept)
			for (k = 1; k <= 2; k++) {
				low = 0; high = 10
				for (n = 0; n < 60; n++) { t = (low+high)/2; if (all(t) > kept[k]) low = t; else high = t }
				for (l = 1; l <= 24; l++) printf "{\"step\":%d,\"layer\":%d,\"density\":%.6f}\n", steps[k], l, erfc(high*sqrt(l/2))
			}
		}'
}

# freeze: the embedding and a quarter, then half of the blocks (results/workloads/freeze.toml, half).
loads_freeze() {
	awk 'BEGIN {
		split("6 14", steps); split("6 12", most)
		for (k = 1; k <= 2; k++) for (l = 0; l < 26; l++) printf "{\"step\":%d,\"layer\":%d,\"frozen\":%d}\n", steps[k], l, l <= most[k]
	}'
}

# exit: no token leaves at first. Then a quarter, and then half, of the remaining tokens leave in every
# eighth of the depth (results/workloads/exit.toml, half an eighth). Exits are layers 4, 8, … of the chain.
loads_exit() {
	awk -v microbatches=$microbatches -v tokens=$tokens 'BEGIN {
		split("0 6 14", steps); split("0 0.25 0.5", share)
		for (k = 1; k <= 3; k++) { for (m = 0; m < microbatches; m++) left[m] = tokens
			for (l = 4; l <= 28; l += 4) for (m = 0; m < microbatches; m++) {
				n = int(share[k]*left[m]+0.5); left[m] -= n
				printf "{\"step\":%d,\"layer\":%d,\"microbatch\":%d,\"left\":%d}\n", steps[k], l, m, n
			}
		}
	}'
}

# mod: every second block takes all tokens, then 0.112 ± 0.16 of them by step and microbatch
# (results/workloads/mod.toml).
loads_mod() {
	awk -v microbatches=$microbatches -v tokens=$tokens 'BEGIN {
		srand(1); split("0 6 14", steps)
		for (k = 1; k <= 3; k++) for (l = 2; l <= 24; l += 2) for (m = 0; m < microbatches; m++) {
			n = tokens
			if (k > 1) { x = -6; for (i = 0; i < 12; i++) x += rand(); n = int(0.112*(1+0.16*x)*tokens+0.5) } # Irwin-Hall
			printf "{\"step\":%d,\"layer\":%d,\"microbatch\":%d,\"taken\":%d}\n", steps[k], l, m, n
		}
	}'
}

# attention: all scores, then 0.2 to 0.32 of them by layer, then 0.05 to 1 (results/workloads/attention.toml).
# One of 16 buckets has the share f of the tokens, the others have equal parts of the rest: f^2 + (1-f)^2/15
# of the scores.
length=256
loads_attention() {
	awk -v microbatches=$microbatches -v tokens=$length 'BEGIN {
		srand(1); split("0 6 14", steps); split("1 0.2 0.05", least); split("1 0.32 1", most)
		for (k = 1; k <= 3; k++) for (l = 1; l <= 24; l++) {
			density = least[k]+(most[k]-least[k])*rand()
			root = 240*density-15; if (root < 0) root = 0 # equal buckets leave 1/16
			first = int((1+sqrt(root))/16*tokens+0.5)
			list = first; rest = tokens-first
			for (b = 15; b >= 1; b--) { n = int(rest/b); rest -= n; list = list "," n }
			for (m = 0; m < microbatches; m++) printf "{\"step\":%d,\"layer\":%d,\"microbatch\":%d,\"buckets\":[%s]}\n", steps[k], l, m, list
		}
	}'
}

# moe: the four experts of a block take equal shares of the tokens. Then the two experts of the first
# replica take all, in the last three and then the last six blocks (results/workloads/moe.toml, hot layers).
loads_moe() {
	awk -v microbatches=$microbatches -v tokens=$tokens 'BEGIN {
		split("0 6 14", steps); split("0 3 6", hot)
		for (k = 1; k <= 3; k++) for (l = 1; l <= 12; l++) for (m = 0; m < 2*microbatches; m++) {
			n = tokens/4; if (l > 12-hot[k]) n = tokens/2
			printf "{\"step\":%d,\"layer\":%d,\"microbatch\":%d,\"tokens\":[%d,%d,%d,%d]}\n", steps[k], l, m, n, n, tokens/2-n, tokens/2-n
		}
	}'
}

run() { # KIND BALANCER SETTINGS
	local kind=$1 balancer=$2 dir=$runs/$1-$2
	shift 2
	bin/dynmo train "${settings[@]}" --set "dynamic.kind=$kind" --set "dynamic.replay=$runs/$kind.jsonl" --set "balance.kind=$balancer" "$@" --run-dir "$dir" >&2
	list+=("$dir")
}

for kind in "${kinds[@]}"; do
	"loads_$kind" >"$runs/$kind.jsonl"
done
list=()
for balancer in uniform partition; do
	for kind in "${kinds[@]}"; do
		case $kind in
		prune) run prune $balancer ;;
		freeze) run freeze $balancer --set freeze.when=step ;;
		attention) run attention $balancer --set attention.buckets=16 --set "model.sequence=$length" --set parallel.microbatch_size=1 ;;
		exit) run exit $balancer --set exit.after=3,6,9,12,15,18,21 --set exit.weight=0 ;;
		mod) run mod $balancer --set mod.route=predictor ;;
		moe) run moe $balancer --set model.family=llama --set model.blocks=12 --set moe.experts=4 --set moe.top=1 --set "parallel.stages=$((ranks / 2))" --set parallel.replicas=2 --set parallel.experts=spread ;;
		esac
	done
done
printf 'command: bench/replayed.sh %s\n' "$ranks $*"
sed -n 's/^  "\(revision\|go\|platform\|cpu\|cores\|kernels\|corpus\|date\)": "\{0,1\}\([^",]*\).*/\1: \2/p' "${list[0]}/provenance.json"
printf '\n'
bin/dynmo table --phases --wide "${list[@]}"
for dir in "${list[@]}"; do
	printf '\n%s, executed (clock=virtual) and simulated on its own costs (clock=sim)\n\n' "${dir##*/}"
	bin/dynmo simulate "$dir/config.toml" --costs "$dir/costs.jsonl" | sed -n '/^makespan of what/,$p'
done
