#!/usr/bin/env bash
# Shows that two builds of dynmo train alike, bit for bit. Each configuration runs with
# both builds. The losses and gradient norms of all steps and the hash of the final
# weights are compared. A resumed run goes on from a checkpoint that the old build wrote.
#
#   bench/same.sh OLD/bin/dynmo bin/dynmo [PATTERN]
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \?//p' "$0"; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") pattern=${3:-.}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$new" data prepare -o "$work/tokens.bin" src/schedule/*.go src/model/*.go >/dev/null

small='train.hash=true model.blocks=6 model.hidden=64 model.sequence=32 train.steps=26 prune.start=6 prune.every=4 optimizer.warmup=4'
few='model.blocks=4 parallel.stages=4 parallel.microbatches=4 parallel.microbatch_size=2'
freeze='freeze.start=4 freeze.every=4 freeze.reference=4 freeze.average=2 freeze.window=2 freeze.tolerance=0.5'
exits='exit.start=4 exit.until=16 exit.share=0.5'
experts='moe.experts=4 moe.intermediate=32'
cases=(
	"demo-4x1|demo-4x1|"
	"demo-2x2|demo-2x2|"
	"P=1|demo-4x1|parallel.stages=1"
	"P=3, gpipe|demo-4x1|parallel.stages=3 schedule.kind=gpipe"
	"P=4, zb-v|demo-4x1|parallel.stages=4 schedule.kind=zb-v balance.by=param"
	"P=4, auto|demo-4x1|schedule.kind=auto"
	"P=2, D=2, interleaved|demo-2x2|schedule.kind=interleaved schedule.chunks=3 balance.by=param"
	"half blocks, zb-h2|demo-4x1|model.grain=half schedule.kind=zb-h2"
	"head in 5 slices, tied|demo-4x1|model.head_shards=5 model.tied=true balance.kind=diffusion"
	"token file, 50257 tokens|demo-4x1|data.path=$work/tokens.bin model.vocab=50257 model.hidden=32 train.steps=12 prune.times=1"
	"llama|llama|$few"
	"llama, half, validated|llama|$few model.grain=half data.validation=0.05 train.validate_every=9"
	"pruned in blocks, D=2|pruning|$few prune.structure=block32 prune.csr_from=0.6"
	"frozen by plasticity|freezing|$few $freeze"
	"frozen at a step|freezing|$few freeze.when=step freeze.step=8 freeze.layers=2"
	"sparse attention|sparse-attention|$few attention.buckets=4"
	"exits, classifier|early-exit|$few $exits"
	"exits, saturation, states|early-exit|$few $exits exit.confidence=saturation exit.propagate=true"
	"exits, softmax|early-exit|$few $exits exit.confidence=softmax"
	"depths, top k|mod|$few mod.route=topk"
	"depths, predictor|mod|$few mod.route=predictor mod.capacity=0.5"
	"experts, loss|moe-llama|$few $experts moe.capacity=1.25"
	"experts, s-base|moe-llama|$few $experts moe.balance=s-base"
	"experts in groups|moe-llama|$few $experts model.grain=expert moe.groups=2 moe.capacity=1.5"
	"experts over replicas|moe-llama|$few $experts parallel.stages=2 parallel.replicas=2 parallel.experts=spread moe.router=mlp"
	"depths and experts|moe-llama|$few $experts dynamic.kind=mod+moe mod.capacity=0.5"
	"exits and experts|moe-llama|$few $experts dynamic.kind=exit+moe $exits exit.propagate=true"
	"pruned and frozen|pruning|$few dynamic.kind=prune+freeze $freeze"
	"blocks dropped|mod|$few dynamic.kind=layerdrop layerdrop.gamma=0.1"
	"depths, blocks dropped|mod|$few dynamic.kind=mod+layerdrop layerdrop.gamma=0.1 model.grain=half"
	"resumed, pruned|demo-4x1|checkpoint.every=10"
	"resumed, exits and experts|moe-llama|$few $experts dynamic.kind=exit+moe $exits checkpoint.every=10"
)

# start BINARY DIR CASE SEED [FLAG...]: trains in a run directory.
start() {
	local binary=$1 dir=$2 job=${3#*|} sets=() pair
	for pair in run.seed=$4 $small ${3##*|}; do sets+=(--set "$pair"); done
	"$binary" train "jobs/${job%%|*}.toml" "${sets[@]}" --run-dir "$dir" "${@:5}" >"$dir.out" 2>"$dir.err"
}

# run BINARY NAME CASE SEED: losses and gradient norms of every step, then the hash.
run() {
	local dir="$work/$2" from="$work/from$4"
	if [[ $3 == resumed* ]]; then
		[ -d "$from" ] || DYNMO_FAULT=exit@20:0 start "$old" "$from" "$3" "$4" || true
		cp -r "$from" "$dir"
		start "$1" "$dir" "$3" "$4" --resume || { cat "$dir.err" >&2; exit 1; }
	else
		start "$1" "$dir" "$3" "$4" || { cat "$dir.err" >&2; exit 1; }
	fi
	grep -o '"loss":[^,]*,"grad_norm":[^,]*' "$dir/metrics.jsonl" >"$dir.losses"
	sed -n 's/.*weights //p' "$dir.out" >"$dir.hash"
}

printf '%-26s %5s  %-22s %-12s %-12s %s\n' configuration steps 'last loss' 'old hash' 'new hash' 'all losses, norms and the hash'
status=0
for i in "${!cases[@]}"; do
	[[ ${cases[i]%%|*} =~ $pattern ]] || continue
	run "$old" "old$i" "${cases[i]}" "$i"
	run "$new" "new$i" "${cases[i]}" "$i"
	verdict=equal
	[ -s "$work/new$i.hash" ] && cmp -s "$work/old$i.losses" "$work/new$i.losses" && cmp -s "$work/old$i.hash" "$work/new$i.hash" || { verdict=DIFFERENT; status=1; }
	printf '%-26s %5s  %-22s %-12.10s %-12.10s %s\n' "${cases[i]%%|*}" "$(wc -l <"$work/new$i.losses")" \
		"$(sed -n '$s/"loss":\([^,]*\).*/\1/p' "$work/new$i.losses")" "$(cat "$work/old$i.hash")" "$(cat "$work/new$i.hash")" "$verdict"
done
exit $status
