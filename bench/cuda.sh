# The parts of a build that need NVIDIA's CUDA toolkit. Sourced by build.sh,
# after machine.sh, in the root of the repository.

# find_nvcc sets nvcc, cuda_home and cuda_libs (where libcuda, or a stub of it, is
# linked from).
find_nvcc() {
	local dir
	nvcc=${NVCC:-} cuda_libs=''
	for dir in "${CUDA_HOME:-}" "${CUDA_PATH:-}"; do
		[ -n "$nvcc" ] || [ -z "$dir" ] || [ ! -x "$dir/bin/nvcc" ] || nvcc=$dir/bin/nvcc
	done
	[ -n "$nvcc" ] || nvcc=$(command -v nvcc || true)
	[ -n "$nvcc" ] || [ ! -x /usr/local/cuda/bin/nvcc ] || nvcc=/usr/local/cuda/bin/nvcc
	[ -n "$nvcc" ] || return 1
	cuda_home=${CUDA_HOME:-$(cd "$(dirname "$(command -v "$nvcc")")/.." && pwd -P)}
	[ -f "$cuda_home/include/cuda.h" ] || return 1
	for dir in "$cuda_home"/lib64/stubs "$cuda_home"/targets/*/lib/stubs "$cuda_home"/lib/*/stubs; do
		[ ! -f "$dir/libcuda.so" ] || cuda_libs=" -L$dir"
	done
}

# cuda_go adds the toolkit to the environment of a build, for the Go side. The toolkit's
# cuda.h comes before any other of that name. Its other headers come last: go-nvml must be
# compiled with its own nvml.h, which is newer than the toolkit's.
cuda_go() {
	mkdir -p build/cuda/toolkit
	ln -sf "$cuda_home/include/cuda.h" build/cuda/toolkit/
	export CGO_ENABLED=1
	export CGO_CFLAGS="$CGO_CFLAGS -I$PWD/csrc/cuda/driver -I$PWD/build/cuda/toolkit -idirafter $cuda_home/include"
	export CGO_LDFLAGS="$CGO_LDFLAGS$cuda_libs"
}

# has_gpu: whether the NVIDIA driver of this machine, not the emulator's, has a GPU.
has_gpu() {
	local inherited=${LD_LIBRARY_PATH:-}
	if [ -z "${gpu:-}" ]; then
		gpu=no
		! links '#include <dlfcn.h>
int main(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : 0;
	return !init || init(0);
}' -ldl || ! LD_LIBRARY_PATH=${inherited//"$PWD/build/emulator"/} build/probe || gpu=yes
	fi
	[ "$gpu" = yes ]
}

# takes_yes COMMAND [ARGUMENT...] ends the script unless the only argument is --yes.
takes_yes() {
	case ${*:2} in
	'' | --yes) ;;
	*) say "./build.sh $1 takes --yes, not: ${*:2}"; exit 2 ;;
	esac
}

# agree_cuda COMMAND [--yes]: whether want_nvcc may install the toolkit. It asks on a terminal.
# It asks nothing if the toolkit is here or cannot be installed.
agree_cuda() {
	local answer='' size="Debian's CUDA toolkit, from non-free: about 1.6 GB to download, 5.3 GB on disk"
	[ "${2:-}" != --yes ] && [ -n "$has_cc" ] && ! find_nvcc && can_install || return 0
	has_gpu || size+='; there is no GPU here to use it'
	if [ ! -t 0 ] || [ ! -t 2 ]; then
		say "./build.sh $1 would install $size: --yes agrees"
		return 1
	fi
	read -r -p "Install $size? [y/N] " answer || true
	[[ $answer == [yY]* ]]
}

# want_nvcc finds nvcc, or installs Debian's where apt asks nothing.
want_nvcc() {
	local sources=/etc/apt/sources.list.d/dynmo-non-free
	find_nvcc && return 0
	if ! apt-cache policy nvidia-cuda-toolkit 2>/dev/null | grep -q 'Candidate: [^(]'; then
		offer_non_free "$sources" || return 1
	fi
	install nvidia-cuda-toolkit g++
	rm -f "$sources".*
	find_nvcc
}

# offer_non_free FILE lets apt see contrib and non-free of the Debian that is here, by a file
# of sources that the caller removes.
offer_non_free() {
	local list=/etc/apt/sources.list from=/etc/apt/sources.list.d/debian.sources to=$1
	[ "$(id -u)" = 0 ] && grep -qx ID=debian /etc/os-release || return 1
	if [ -f "$from" ]; then
		sed -e '/^#/d' -e 's/^Components:.*/Components: contrib non-free/' "$from" >"$to.sources"
	elif [ -f "$list" ]; then
		sed -n 's/^\(deb .*\) main\b.*/\1 contrib non-free/p' "$list" >"$to.list"
	else
		return 1
	fi
}

missing_nvcc() {
	cat >&2 <<END
no CUDA toolkit (nvcc and cuda.h). One of these brings it:
  Debian          as root, with contrib and non-free in apt's sources: apt-get install nvidia-cuda-toolkit
  a cluster       module load cuda (\`module avail cuda\` shows its name here)
  elsewhere       https://developer.nvidia.com/cuda-downloads, 11.8 to 13, and CUDA_HOME=/path/to/it
END
	return 1
}

# nvcc_host prints the flags that choose nvcc's host compiler: none if nvcc accepts its
# default, else the newest compiler that nvcc accepts.
nvcc_host() {
	local compiler
	printf '#include <string>\n__global__ void k() {}\n' >build/cuda/probe.cu
	for compiler in '' g++-15 g++-14 g++-13 g++-12 g++-11 g++-10; do
		[ -z "$compiler" ] || command -v "$compiler" >/dev/null || continue
		if "$nvcc" ${compiler:+-ccbin "$compiler"} -std=c++17 -c build/cuda/probe.cu -o build/cuda/probe.o 2>build/cuda/probe.log; then
			printf '%s' "${compiler:+-ccbin $compiler}"
			return 0
		fi
	done
	cat build/cuda/probe.log >&2
	return 1
}

# architectures prints those of ARCHS (80 90) that nvcc knows.
architectures() {
	local a known found=''
	known=$("$nvcc" --list-gpu-code) || return 1
	for a in ${ARCHS:-80 90}; do
		case $known in
		*"sm_$a"*) found+="${found:+ }$a" ;;
		*) say "$nvcc has no code for sm_$a: left out" ;;
		esac
	done
	[ -n "$found" ] && echo "$found"
}

# knows_hopper ARCHS: whether sm_90 is wanted and nvcc compiles for sm_90a, with the
# instructions that Hopper alone has (nvcc 12.0 and later).
knows_hopper() {
	case " $1 " in *' 90 '*) ;; *) return 1 ;; esac
	"$nvcc" --dryrun $hopper_target -c -x cu /dev/null -o build/cuda/probe.o 2>/dev/null
}
hopper_target='-gencode arch=compute_90a,code=sm_90a'

# cuda_sources ARCHS prints the files that the library is made of: *_hopper.cu, which use
# Hopper's instructions, only where nvcc knows them.
cuda_sources() {
	if knows_hopper "$1"; then ls csrc/cuda/*.cu; else ls csrc/cuda/*.cu | grep -v '_hopper\.cu$'; fi
}

# cuda_targets SOURCE ARCHS prints what a file is compiled for.
cuda_targets() {
	local a
	case $1 in *_hopper.cu) echo "$hopper_target"; return ;; esac
	for a in $2; do
		printf -- '-gencode arch=compute_%s,code=sm_%s ' "$a" "$a"
	done
	echo "-gencode arch=compute_$a,code=compute_$a" # for GPUs to come
}

# cuda_objects FLAGS ARCHS RELEASE SOURCE... compiles the sources that have changed, or whose
# headers or flags have changed, since the last time.
cuda_objects() {
	local flags=$1 archs=$2 release=$3 source object key headers todo=()
	shift 3
	headers=$(cat csrc/cuda/*.cuh csrc/include/dynmo_cuda.h | cksum)
	for source; do
		object=build/cuda/$(basename "$source" .cu)
		key="$release $flags $(cuda_targets "$source" "$archs") $headers $(cksum <"$source")"
		if [ ! -f "$object.o" ] || [ "$(cat "$object.key" 2>/dev/null)" != "$key" ]; then
			rm -f "$object.key"
			printf '%s' "$key" >"$object.newkey"
			todo+=("$source $(cuda_targets "$source" "$archs")")
		fi
	done
	say "nvcc $release: ${#todo[@]} of $# files to compile, for $(cuda_code "$archs" "$@")"
	[ ${#todo[@]} = 0 ] || printf '%s\n' "${todo[@]}" | nvcc=$nvcc flags=$flags xargs -P "${JOBS:-2}" -L 1 sh -c '
		o=build/cuda/$(basename "$1" .cu)
		"$nvcc" $flags "$@" -o "$o.o" && mv "$o.newkey" "$o.key"' sh
}

# cuda_code ARCHS SOURCE... prints what the library of these files has code for.
cuda_code() {
	printf 'sm_%s ' $1
	case $* in *_hopper.cu*) printf 'sm_90a ' ;; esac
	printf 'compute_%s' "${1##* }"
}

# cuda_compiled FORM compiles csrc/cuda: into objects (-c), or only what GPUs run (-fatbin),
# which leaves out half of the work. It sets host, archs, release and sources.
cuda_compiled() {
	local flags
	mkdir -p build/cuda lib
	host=$(nvcc_host) || { say "$nvcc takes none of the host's compilers: name one with NVCC_PREPEND_FLAGS=\"-ccbin g++-N\""; return 1; }
	archs=$(architectures) || { say "$nvcc knows none of ARCHS=\"${ARCHS:-80 90}\""; return 1; }
	release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
	sources=$(cuda_sources "$archs")
	flags="$1 $host -std=c++17 -O3 -Icsrc/include -Xcompiler -fPIC,-fvisibility=hidden ${NVCCFLAGS:-}"
	case $sources in *_hopper.cu*) flags+=' -DDYNMO_HOPPER' ;; esac # its calls are there
	cuda_objects "$flags" "$archs" "$release" $sources
}

# cuda_library makes lib/libdynmo_cuda.so of csrc/cuda. Its symbol dynmo_cuda_built names
# version, architectures and compiler.
cuda_library() {
	local archs host release sources dir rpath=''
	cuda_compiled -c || return 1
	cat >build/cuda/built.c <<END
#include "dynmo_cuda.h"
#define TEXT(x) #x
#define VALUE(x) TEXT(x)
__attribute__((visibility("default"))) const char dynmo_cuda_built[] =
	"version " VALUE(DYNMO_CUDA_VERSION) "; $(cuda_code "$archs" $sources); nvcc $release";
END
	$cc -O1 -fPIC -Icsrc/include -c build/cuda/built.c -o build/cuda/built.o || return 1
	for dir in "$cuda_home"/lib64 "$cuda_home"/targets/*/lib; do
		[ ! -e "$dir/libcublasLt.so" ] || rpath="-Xlinker -rpath,$dir"
	done
	"$nvcc" $host -shared -nodlink $rpath -Xlinker -z,defs -o lib/libdynmo_cuda.so.new \
		$(basename -s .cu $sources | sed 's,.*,build/cuda/&.o,') build/cuda/built.o -ldl &&
		mv lib/libdynmo_cuda.so.new lib/libdynmo_cuda.so && say 'built lib/libdynmo_cuda.so'
}

# spills: no kernel of attention or of short sparse lists, as cuda_compiled left them, keeps registers in memory.
spills() {
	local dump object
	dump=$(dirname "$(command -v "$nvcc")")/cuobjdump
	[ -x "$dump" ] || { say "skipped, without $dump: registers of attention"; return 0; }
	for object in build/cuda/{attention,sparse_short}*.o; do "$dump" --dump-resource-usage "$object"; done | awk '
		/^arch/ { arch = $3 }
		/Function/ { kernel = $2; kernels++ }
		/ STACK:[1-9]/ { print kernel, arch, "spills:", $2; bad = 1 }
		END { exit bad || !kernels }' >&2
}

# cuda_build makes bin/dynmo-cuda, which bin/dynmo becomes where GPUs are wanted.
cuda_build() {
	go build -trimpath -tags "$tags${tags:+ }cuda" -ldflags "-X main.version=$(revision)" -o bin/dynmo-cuda ./src/cmd/dynmo &&
		say "built bin/dynmo-cuda $(revision)"
}

# cuda_environment prints the settings, name=value, of a process that uses this
# machine's GPU; where there is none, the emulator.
cuda_environment() {
	if has_gpu; then
		echo "DYNMO_CUDA_LIBRARY=$PWD/lib/libdynmo_cuda.so"
	else
		echo "DYNMO_CUDA_LIBRARY=$PWD/build/emulator/libdynmo_cuda.so"
		echo "LD_LIBRARY_PATH=$PWD/build/emulator${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	fi
}

# cuda_driver makes the library that cuda_environment names.
cuda_driver() {
	if has_gpu; then cuda_library; else CUDA_HOME=$cuda_home csrc/emulate/build.sh build/emulator; fi
}

# cuda_test_files prints the test files that only the tag cuda brings.
cuda_test_files() { grep -rlE '^//go:build (.*[ (])?cuda([ )]|$)' --include='*_test.go' src; }

# cuda_packages prints the packages of those files, and cuda_tests a pattern of their tests.
# The other tests of these packages have run without the tag.
cuda_packages() { cuda_test_files | xargs -r -n 1 dirname | LC_ALL=C sort -u | sed 's,^,./,'; }
cuda_tests() {
	cuda_test_files | xargs -r grep -hoE '^func Test[A-Z][A-Za-z0-9_]*' | sed 's/^func //' |
		grep -v '^TestMain$' | paste -sd '|' | sed 's/.*/^(&)$/'
}

# test_cuda TIMEOUT: the parts of the tests that need the CUDA toolkit, after cuda_go.
# Only files that the tag adds are left to vet.
test_cuda() {
	local where='the emulator' all="$tags${tags:+ }cuda"
	! has_gpu || where='a GPU'
	if [ -z "$has_cc" ] || ! find_nvcc; then
		say '== skipped, without a CUDA toolkit: cuda library; vet, cuda; test, cuda'
		return 0
	fi
	if has_gpu || [ -n "${DYNMO_LONG:-}" ] || [ -e lib/libdynmo_cuda.so ]; then
		part 'cuda library' cuda_library
	else # the emulator compiles the host's side; the sources have no code of one architecture alone
		local archs host release sources
		local -x ARCHS=${ARCHS:-90}
		part 'kernels by nvcc' cuda_compiled -fatbin
	fi
	part 'registers of attention' spills
	part 'vet, cuda' go vet -tags "$all" $(comm -13 <(package_files -tags "$tags") <(package_files -tags "$all") | cut -d ' ' -f 1)
	part 'emulator' cuda_driver
	part "test, cuda on $where" env $(cuda_environment) \
		go test -vet=off -count=1 -timeout "$1" -tags "$all" -run "$(cuda_tests)" $(cuda_packages)
	if ! has_gpu && [ -n "${DYNMO_LONG:-}" ]; then
		part 'selftest of the emulator' env CUDA_HOME="$cuda_home" csrc/emulate/build.sh build/emulator --selftest
		part 'mutations of barriers' bench/mutate.sh
	fi
	[ -z "${DYNMO_LONG:-}" ] || part 'CUDA 12, laid out as NVIDIA does' test_toolkit
}

# test_toolkit builds a copy of the sources with a toolkit of CUDA 12 in one folder, as
# NVIDIA lays toolkits out. It runs the kernels' conformance on an emulator of its headers.
test_toolkit() {
	local toolkit=$PWD/build/toolkit copy=$PWD/build/toolkit-build status=0
	bench/toolkit.sh "$toolkit" || status=$?
	[ "$status" != 3 ] || { say 'SKIP the build with CUDA 12'; return 0; }
	[ "$status" = 0 ] || return 1
	rm -rf "$copy"/{bench,csrc,src}
	mkdir -p "$copy"
	cp -rp go.mod go.sum build.sh bench csrc src "$copy"
	(
		cd "$copy"
		export CUDA_HOME=$toolkit NVCC=$toolkit/bin/nvcc
		./build.sh cuda && grep -q 'nvcc 12\.' lib/libdynmo_cuda.so || exit 1
		eval "$(./build.sh env cuda)"
		go test -vet=off -short -count=1 -tags "$TAGS" -run Conformance ./src/kernel/cuda
	)
}
