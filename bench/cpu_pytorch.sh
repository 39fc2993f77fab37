#!/usr/bin/env bash
# A training step in dynmo and in PyTorch, on one thread of this CPU: GPT-2 124M, and the LLaMA and
# the mixture of experts of `dynmo bench step --model`. A round has each kind of step once, in turn,
# and a ratio is of steps of one round: the machine may do other work. Times are CPU time of the
# process (`--clock virtual`).
#
#   bench/cpu_pytorch.sh DIRECTORY >results/cpu-step.txt
#   TORCH_PYTHON=python3 bench/cpu_pytorch.sh >results/cpu-step.txt
#
# The first form installs PyTorch of Debian testing into DIRECTORY (2 GB, kept for the next call),
# as root, with debootstrap. The second form takes a Python with PyTorch. torch.compile needs a
# C++ compiler, and the headers of PyTorch and Sleef. Needs bin/dynmo, a CPU with avx512_bf16, oneDNN,
# and jq. ROUNDS has the numbers of rounds, 0 or at least 2: of GPT-2 with 4 x 64 and with 4 x 256
# tokens, of LLaMA and of the mixture with 4 x 64 tokens.
set -euo pipefail
directory=${1:+$(realpath -m -- "$1")}
cd "$(dirname "$0")/.."
dynmo=${BIN:-bin/dynmo}
read -r short long llama mixtral <<<"${ROUNDS:-9 5 5 5}"
for count in "$short" "${long:-}" "${llama:-}" "${mixtral:-}"; do
	[[ $count =~ ^[0-9]+$ && $count != 1 ]] || { echo "bench/cpu_pytorch.sh: ROUNDS=\"$ROUNDS\": want four numbers, 0 or at least 2" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Variables that choose kernels of the BLAS. dynmo and PyTorch choose for themselves.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
# PyTorch is faster if malloc keeps memory from step to step: the kernel does not clear it again.
memory=(MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456)

# chrooted COMMAND...: runs a command in DIRECTORY. PyTorch and oneDNN choose their instructions
# by /proc and /sys. The scripts of this folder are at /mnt.
chrooted() {
	# shellcheck disable=SC2016 # the inner shell expands
	unshare --mount --propagation private bash -c '
		for at in proc sys dev; do mount --rbind "/$at" "$0/$at"; done
		mount --bind bench "$0/mnt"
		exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin DEBIAN_FRONTEND=noninteractive "$@"' "$directory" "$@"
}

# install makes DIRECTORY. Its apt takes lists of packages that have expired if that of this
# machine does.
install() {
	local valid=true
	eval "$(apt-config shell valid Acquire::Check-Valid-Until)"
	debootstrap --variant=minbase testing "$directory"
	cp /etc/resolv.conf "$directory/etc/resolv.conf"
	chrooted apt-get -o Acquire::Check-Valid-Until="$valid" update
	chrooted apt-get install -y --no-install-recommends python3-torch libopenblas0-pthread libtorch-dev libsleef-dev libpython3-dev g++
	chrooted apt-get clean
	touch "$directory/installed"
}

# peer ARGUMENTS...: cpu_pytorch.py in the Python that was asked for. Without LD_PRELOAD
# torch.compile of Debian does not find Sleef, and makes code without vectors.
peer() {
	local settings=("${memory[@]}" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1)
	if [ -n "$directory" ]; then
		chrooted env "${settings[@]}" LD_PRELOAD=libsleef.so.3 python3 /mnt/cpu_pytorch.py "$@"
	else
		env "${settings[@]}" "$TORCH_PYTHON" bench/cpu_pytorch.py "$@"
	fi
}

# ask REQUEST: the answer of cpu_pytorch.py, which runs beside this script.
ask() {
	printf '%s\n' "$*" >&"$to"
	read -r answer <&"$from" || { printf 'bench/cpu_pytorch.sh: PyTorch ended at "%s"\n' "$*" >&2; exit 1; }
}

# round NUMBER MODEL LENGTH: a line of seconds for each kind of step. dynmo ends with an error if the
# rate of its step is low; a figure is right unless `wrong` says otherwise.
round() {
	local kind
	for kind in f32_eager f32_compiled bf16_eager bf16_compiled; do
		ask "$2" "$kind" 4 "$3"
		printf '%s %s %s %s %s\n' "$1" "$2" "$3" "$kind" "$answer"
	done
	"$dynmo" bench step --model "$2" --clock virtual --rounds 3 --precision bf16 --length "$3" --json >"$work/step.jsonl" 2>"$work/errors" || true
	jq -r -s --arg of "$1 $2 $3" --arg length "$3" 'map(select(.name | test("tokens_per_second"))) |
		if length != 2 or any(.[]; .wrong > 0) then error("no figures, or wrong ones") else .[] end |
		"\($of) dynmo_\(if .name | test("bf16") then "bf16" else "f32" end) \(4 * ($length | tonumber) / .value)"' "$work/step.jsonl" ||
		{ cat "$work/errors" >&2; exit 1; }
}

[ -n "$directory" ] || [ -n "${TORCH_PYTHON:-}" ] || { echo 'bench/cpu_pytorch.sh: no PyTorch. Name a directory for one, or a Python that has it:' >&2; sed -n '/^#  /s/^# *//p' "$0" >&2; exit 2; }
[ -z "$directory" ] || [ -f "$directory/installed" ] || install >&2
coproc PEER { peer; }
exec {to}>&"${PEER[1]}" {from}<&"${PEER[0]}" # a pipe below closes the files of PEER
ask versions
versions=$answer
{
	for ((i = 1; i <= short; i++)); do round "$i" gpt2 64; done
	for ((i = 1; i <= long; i++)); do round "$i" gpt2 256; done
	for ((i = 1; i <= llama; i++)); do round "$i" llama 64; done
	for ((i = 1; i <= mixtral; i++)); do round "$i" mixtral 64; done
} | tee "$work/seconds" >&2

jq -r -s --arg rounds "$short $long $llama $mixtral" '.[0] | "command: ROUNDS=\"\($rounds)\" bench/cpu_pytorch.sh\nrevision: \(.revision)\ndate: \(.date[:10])\ncpu: \(.cpu)\nclock: \(.clock), one thread\ndynmo: \(.path), \(.blas)"' "$work/step.jsonl"
printf 'oneDNN of dynmo: %s\n' "$("$dynmo" doctor 2>/dev/null | grep -o -m 1 'oneDNN [0-9].*' || true)"
printf 'pytorch: %s\nnote: attention of bf16 in PyTorch is scaled_dot_product_attention with MATH; its fused one is slower here\nnote: seconds of a step of PyTorch over those of dynmo: above 1, dynmo is faster\n\n' "$versions"
peer /dev/stdin <"$work/seconds"
