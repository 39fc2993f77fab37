#!/usr/bin/env bash
# Lets the trainers' own code judge the texts, cuts and layouts of src/lab/layouts. It takes checkouts of the
# trainers, and runs their pure Python functions with stand-ins for torch and process groups. DeepSpeed's
# and nanotron's need numpy. PYTHON is the interpreter (default python3). It ends with 1 if an answer differs.
#
#   bench/layout-peers.sh megatron=../Megatron-LM deepspeed=../DeepSpeed torchtitan=../torchtitan nanotron=../nanotron
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || { echo "usage: bench/layout-peers.sh TRAINER=CHECKOUT ..., with megatron, deepspeed, torchtitan, nanotron" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$here" && go test -timeout 180s -count=1 ./src/lab/layouts -run 'TestPeers$' -peers "$work/cases" >"$work/log") || { cat "$work/log" >&2; exit 1; }
"${PYTHON:-python3}" "$here/bench/layout_peers.py" "$work/cases" "$@"
