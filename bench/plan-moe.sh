#!/usr/bin/env bash
# Plans of the paper's mixtures of experts at their real shapes, jobs/paper, on costs of this
# machine's CPU in float32. Also the gain of balancing on these costs and recorded routing.
# Costs are those of results/costs-moe. With "measure" they are measured first: one block of
# each model, Mixtral's with two of its eight experts (14 GiB, six minutes of an idle core a
# model). Needs bin/dynmo (./build.sh build), or another program as BIN.
#
#   bench/plan-moe.sh [measure] >results/plan-moe.txt
set -euo pipefail
cd "$(dirname "$0")/.."

dynmo="${BIN:-bin/dynmo}"
linear=(--set moe.router=linear) # costs of LLaMA-MoE are of a router of one matrix
if [ "${1:-}" = measure ]; then
	mkdir -p results/costs-moe
	measure() {
		GOMAXPROCS=1 OPENBLAS_NUM_THREADS=1 "$dynmo" profile "jobs/paper/$1.toml" --once --steps 1 "${@:2}" \
			--set parallel.microbatches=2 --set device.kind=cpu --set run.clock=virtual -o "results/costs-moe/$1.json" --force
	}
	measure llama-moe-3.5b "${linear[@]}"
	measure mixtral-8x7b --experts 2
fi

printf 'command: bench/plan-moe.sh\nrevision: %s\n' "$(git rev-parse --short HEAD)"
printf 'costs: results/costs-moe, measured by bench/plan-moe.sh measure: clock=virtual, one thread, float32\n'
printf 'cpu: AMD EPYC (Zen 4), 2 cores, shared with other work; OpenBLAS 0.3.21, AVX-512\ndate: %s\n' "$(date -u +%F)"
cat <<'NOTES'
note: Mixtral's block was measured with two of its eight experts, which have as many rows together
note: LLaMA-MoE's router was measured, and is planned, as one matrix; its second has 256 weights more in a block
note: routing is that of small twins (results/routing.txt), costs are those of the real shapes; a step is minutes on a
  CPU, so that measuring, deciding and moving are nothing beside it
note: layers that move gain little, for the best cuts do not gain more ("best cuts"): 24 and 32 blocks divide by 8 stages, and
  the blocks of a stage together lose about as much to their fullest ranks as those of another. What unequal loads cost
  is "total" below 1; placed experts get some of it back where a rank has several (fewer replicas than experts), else none
note: the paper's 1.21 and 1.23 ask for layers whose loads differ more than these twins' do; of the bubble ratio 0.18 is the
  pipeline's fill on 8 stages with 32 microbatches, which no cuts change
note: stages of the plans, as `dynmo plan` prints them first, are left out
NOTES

# answer COMMAND... prints a command and its output. A failing status is no error here.
answer() {
	printf '\n$ bin/dynmo %s\n' "$*"
	("$dynmo" "$@" || true) | sed '/^stage /,/^$/d'
}
costs=(results/costs-moe/mixtral-8x7b.json results/costs-moe/llama-moe-3.5b.json)
answer plan jobs/paper/mixtral-8x7b.toml --costs "${costs[0]}" --set device.kind=cpu
answer plan jobs/paper/mixtral-8x7b.toml --costs "${costs[0]}" --set device.kind=cpu --set balance.memory_limit_bytes=80000000000
answer plan jobs/paper/llama-moe-3.5b.toml --costs "${costs[1]}" --set device.kind=cpu "${linear[@]}"
