#!/usr/bin/env bash
# A toolkit of CUDA 12.4, laid out as NVIDIA's own are, to build with where another is
# installed: nvcc, its headers, the static runtime, stubs of the libraries.
#
#   bench/toolkit.sh DIR     makes DIR, unless a toolkit is there
#
# It is made of packages of Debian 13, from non-free: 1.0 GB to download, 0.3 GB on disk.
# apt verifies them by Debian's keys; nothing is installed, and apt's own lists stay as
# they are. The status is 3, with the reason, where they cannot be had. DEBIAN_MIRROR
# names another mirror.
set -euo pipefail
[ $# = 1 ] || { echo 'usage: bench/toolkit.sh DIR' >&2; exit 2; }

keys=/usr/share/keyrings/debian-archive-keyring.gpg
packages=(nvidia-cuda-toolkit nvidia-cuda-dev libnvidia-ml-dev libcu++-dev)

lacking() { echo "no toolkit of CUDA 12: $*" >&2; exit 3; }

dir=${1%/}
[ ! -x "$dir/bin/nvcc" ] || exit 0
[ ! -e "$dir" ] || rmdir "$dir" 2>/dev/null || { echo "bench/toolkit.sh: $1 holds something else than a toolkit" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || lacking "Debian has it for x86-64, this is $(uname -m)"
for program in apt-get dpkg-deb; do
	command -v "$program" >/dev/null || lacking "no $program"
done
[ -f "$keys" ] || lacking "no $keys (package debian-archive-keyring)"

work=$dir.new
rm -rf "$work"
mkdir -p "$work"/{lists/partial,cache/archives/partial,none,debs,root}
work=$(cd "$work" && pwd)
trap 'rm -rf "$work"' EXIT
echo "deb [arch=amd64 signed-by=$keys] ${DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie main contrib non-free" >"$work/sources"
: >"$work/status"
options=(-q -o "Dir::Etc::SourceList=$work/sources" -o "Dir::Etc::SourceParts=$work/none"
	-o "Dir::State::Lists=$work/lists" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
	-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none -o Acquire::Retries=2)
[ "$(id -u)" != 0 ] || options+=(-o APT::Sandbox::User=root)
apt-get "${options[@]}" update >"$work/log" 2>&1 && ! grep -qE '^(Err|W: Failed)' "$work/log" ||
	lacking "apt-get update: $(grep -E '^[EW]:' "$work/log" | head -n 1)"
(cd "$work/debs" && apt-get "${options[@]}" download "${packages[@]}") >"$work/log" 2>&1 ||
	lacking "apt-get download: $(grep -E '^[EW]:' "$work/log" | head -n 1)"

# Of the development package most is static libraries that nothing here is linked with.
for package in "$work"/debs/*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/root" --exclude='*_static*.a' --exclude=./usr/share
done
dpkg-deb --fsys-tarfile "$work"/debs/nvidia-cuda-dev_*.deb |
	tar -x -C "$work/root" --wildcards './usr/lib/*/libcudart_static.a' './usr/lib/*/libcudadevrt.a'

# Debian spreads over the system what NVIDIA has in one folder; the profile tells nvcc
# where its parts are.
root=$work/root/usr
made=$work/made
mkdir -p "$made"/nvvm/bin "$made/targets/x86_64-linux"
rm "$root/bin/nvcc" # a script with Debian's paths
mv "$root/bin" "$made/bin"
mv "$root"/lib/nvidia-cuda-toolkit/bin/{nvcc,crt} "$made/bin/"
mv "$root/lib/nvidia-cuda-toolkit/bin/cicc" "$made/nvvm/bin/"
mv "$root/lib/nvidia-cuda-toolkit/libdevice" "$made/nvvm/"
mv "$root/include" "$made/include"
mv "$root/lib/x86_64-linux-gnu" "$made/targets/x86_64-linux/lib"
ln -s targets/x86_64-linux/lib "$made/lib64"
cat >"$made/bin/nvcc.profile" <<'END'
TOP              = $(_HERE_)/..
CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(CICC_PATH):$(_HERE_):
INCLUDES        += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES       =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
END
"$made/bin/nvcc" --version >/dev/null
mv "$made" "$dir"
