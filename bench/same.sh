#!/usr/bin/env bash
# Shows that two builds of dynmo train alike, bit for bit: ten configurations, each
# run with both, all losses and the hash of the final weights compared.
#
#   bench/same.sh OLD/bin/dynmo bin/dynmo
set -euo pipefail
[ $# = 2 ] || { sed -n '2,5s/^# \?//p' "$0"; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$new" data prepare -o "$work/tokens.bin" src/schedule/*.go src/plan/*.go >/dev/null

small='model.blocks=6 model.hidden=64 model.sequence=32 train.steps=26 prune.start=6 prune.every=4'
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
)

# run BINARY NAME CASE: losses and gradient norms of every step, then the hash.
run() {
	local dir="$work/$2" sets=()
	for pair in run.seed=$4 $small ${3##*|}; do sets+=(--set "$pair"); done
	local job=${3#*|}
	"$1" train "jobs/${job%%|*}.toml" "${sets[@]}" --run-dir "$dir" >"$dir.out" 2>"$dir.err" || { cat "$dir.err" >&2; exit 1; }
	grep -o '"loss":[^,]*,"grad_norm":[^,]*' "$dir/metrics.jsonl" >"$dir.losses"
	sed -n 's/.*weights //p' "$dir.out" >"$dir.hash"
}

printf '%-26s %5s  %-22s %-12s %-12s %s\n' configuration steps 'last loss' 'old hash' 'new hash' 'all losses, norms and the hash'
status=0
for i in "${!cases[@]}"; do
	run "$old" "old$i" "${cases[i]}" "$i"
	run "$new" "new$i" "${cases[i]}" "$i"
	verdict=equal
	cmp -s "$work/old$i.losses" "$work/new$i.losses" && cmp -s "$work/old$i.hash" "$work/new$i.hash" || { verdict=DIFFERENT; status=1; }
	printf '%-26s %5s  %-22s %-12.10s %-12.10s %s\n' "${cases[i]%%|*}" "$(wc -l <"$work/new$i.losses")" \
		"$(sed -n '$s/"loss":\([^,]*\).*/\1/p' "$work/new$i.losses")" "$(cat "$work/old$i.hash")" "$(cat "$work/new$i.hash")" "$verdict"
done
exit $status
