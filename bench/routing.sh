#!/usr/bin/env bash
# Trains small twins of the paper's mixtures of experts, in the order of their names, and
# records where their routers send tokens: src/dynamic/routing/recorded, which is part of the
# program. Twins are of 24 and 32 blocks, with the balancing loss and with S-BASE; "mod"
# has a mixture of depths besides, whose predictor decides; "other" is a twin on text that
# it did not train on, as a training that goes on with other data begins. Each step of a
# twin is one microbatch of 1024 bytes. About an hour on an idle core, of which half a
# minute a recording.
#
#   bench/routing.sh DIR [TWIN...] >results/routing.txt      runs go to DIR
set -euo pipefail
cd "$(dirname "$0")/.."

dynmo="${BIN:-bin/dynmo}"
dir="$1"
shift
export OPENBLAS_NUM_THREADS=1 GOMAXPROCS=1

# train NAME MODEL BLOCKS STEPS [SETTING...]
train() {
	local name="$1" model="$2" blocks="$3" steps="$4" sets=()
	shift 4
	case "$model" in
	mixtral) sets=(model.hidden=32 model.heads=2 model.key_value_heads=1 model.intermediate=112) ;;
	llama) sets=(model.hidden=48 moe.intermediate=8) ;;
	esac
	sets+=("run.name=$name" "model.blocks=$blocks" "train.steps=$steps" parallel.stages=1 parallel.microbatches=1 parallel.microbatch_size=16 "$@")
	"$dynmo" train "jobs/moe-$model.toml" "${sets[@]/#/--set=}" --run-dir "$dir/$name" >"$dir/$name.log" 2>&1
}

# record NAME RUN [FLAG...]
record() {
	printf '\n$ dynmo bench routing %s\n' "${*:2}"
	"$dynmo" bench routing "$dir/$2" -o "src/dynamic/routing/recorded/$1.gz" --force "${@:3}"
}

printf 'command: bench/routing.sh\nrevision: %s\ndate: %s\n' "$(git rev-parse --short HEAD)" "$(date -u +%F)"
mkdir -p "$dir"
for twin in ${*:-mixtral-24-aux mixtral-24-s-base mixtral-24-aux-mod mixtral-32-aux mixtral-32-s-base llama-24-aux llama-24-s-base llama-24-aux-mod llama-32-aux llama-32-s-base}; do
	IFS=- read -r model blocks balance <<<"$twin"
	case "$balance" in
	aux) train "$twin" "$model" "$blocks" 2000 ;;
	s-base) train "$twin" "$model" "$blocks" "$((blocks == 24 ? 2000 : 1000))" moe.balance=s-base ;;
	aux-mod) train "$twin" "$model" "$blocks" 1000 dynamic.kind=moe+mod mod.route=predictor ;;
	esac
	record "$twin" "$twin"
	if [ "$blocks-$balance" = 24-aux ]; then
		record "$twin-other" "$twin" --data "$(go env GOROOT)/doc"
	fi
done
