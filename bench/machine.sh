# Finds the tools and libraries of this machine for a build, and installs missing ones.
# Sourced by build.sh, in the root of the repository.

say() { printf '%s\n' "$*" >&2; }

revision() { git describe --always --dirty 2>/dev/null || echo unknown; }

# new_enough GO: whether GO is at least the version that go.mod asks for.
new_enough() {
	local have
	have=$("$1" env GOVERSION 2>/dev/null) && [ -n "$have" ] || return 1
	[ "$(printf '%s\n' "$want_go" "${have#go}" | sort -V | head -n 1)" = "$want_go" ]
}

# fetch_go GO: prints the bin directory of Go $want_go, which any older GO can
# fetch from the module proxy, checksum verified, into the module cache.
fetch_go() {
	local dir module
	module="golang.org/toolchain@v0.0.1-go$want_go.$("$1" env GOOS)-$("$1" env GOARCH)"
	say "Go $want_go from the module cache, or else the module proxy"
	dir=$(cd / && GOFLAGS= GOTOOLCHAIN=local "$1" mod download -json "$module" |
		sed -n 's/^.*"Dir": "\(.*\)",*$/\1/p')
	[ -n "$dir" ] || return 1
	find "$dir/bin" "$dir/pkg/tool" -type f ! -perm -u+x -exec chmod a+x {} + # module files are not executable
	printf '%s\n' "$dir/bin"
}

find_go() {
	local go old='' bin
	for go in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go/bin/go; do
		[ -x "$go" ] || continue
		if new_enough "$go"; then
			export PATH="$(dirname "$go"):$PATH"
			return 0
		fi
		old=$go
	done
	[ -n "$old" ] || return 1
	bin=$(fetch_go "$old") && new_enough "$bin/go" && export PATH="$bin:$PATH" && return 0
	say "$("$old" env GOVERSION) is here, and could not fetch Go $want_go: GOPROXY=$("$old" env GOPROXY)"
	return 1
}

# links SOURCE FLAG...: whether a C program compiles and links.
links() {
	mkdir -p build
	printf '%s\n' "$1" | $cc -x c - -o build/probe "${@:2}" 2>/dev/null
}

# find_mpi and find_blas add their flags to cflags and libs if a program links with them.
find_mpi() {
	local line word c='' l=''
	mpicc=${MPICC:-$(command -v mpicc || true)}
	[ -n "$mpicc" ] || return 1
	if line=$("$mpicc" --showme:compile 2>/dev/null); then # Open MPI
		c=$line
		l=$("$mpicc" --showme:link)
	elif line=$("$mpicc" -show 2>/dev/null); then # MPICH and its relatives
		for word in $line; do
			case $word in
			-I* | -D*) c+=" $word" ;;
			-Wl,-z,now) ;; # go-nvml binds functions that older drivers lack, at their first call
			-L* | -l* | -Wl,*) l+=" $word" ;;
			esac
		done
	fi
	links '#include <mpi.h>
int main(int argc, char **argv) { return MPI_Init(&argc, &argv); }' $c $l && cflags+=" $c" && libs+=" $l"
}

find_blas() {
	local c='' l=${BLAS_LIBS:--lopenblas}
	blas=$l
	if [ -z "${BLAS_LIBS:-}" ] && pkg-config --exists openblas 2>/dev/null; then
		c=$(pkg-config --cflags openblas)
		l=$(pkg-config --libs openblas)
		blas="OpenBLAS $(pkg-config --modversion openblas): $l"
	fi
	links 'void cblas_sgemm(void);
int main(void) { cblas_sgemm(); return 0; }' $c ${LDFLAGS:-} $l && cflags+=" $c" && libs+=" $l"
}

# wanted TAG: whether a part shall be built. served TAG: whether it can be built.
wanted() { case " ${TAGS-blas mpi} " in *" $1 "*) ;; *) return 1 ;; esac; }
served() { case " $tags " in *" $1 "*) ;; *) return 1 ;; esac; }

# detect sets has_go and has_cc to yes or nothing, tags to the build tags that
# this machine can serve, and the environment of a build.
detect() {
	local cflags='' libs='' hash
	want_go=$(sed -n 's/^go //p' go.mod)
	has_go='' has_cc='' tags='' mpicc='' blas='' cc=${CC:-gcc}
	find_go && has_go=yes
	links 'int main(void) { return 0; }' && has_cc=yes
	[ -n "$has_cc" ] && wanted blas && find_blas && tags=blas${BLAS_LIBS:+ blaslibs}
	[ -n "$has_cc" ] && wanted mpi && find_mpi && tags+="${tags:+ }mpi"

	# Go's build cache does not see csrc, whose files are included from outside
	# of their packages; it does see flags, so the flags carry csrc's checksum.
	hash=$(find csrc -type f -exec cksum {} + | LC_ALL=C sort | cksum | cut -d ' ' -f 1)
	# The Go side of NVML wraps calls that its header says are deprecated.
	export CGO_CFLAGS="${CFLAGS:--O3 -g} -DDYNMO_CSRC_HASH=$hash -Wno-deprecated-declarations$cflags"
	export CGO_LDFLAGS="${LDFLAGS:-} -Wl,--as-needed$libs"
	# Some compilers bind at the start by default: then no program starts that has go-nvml.
	! links 'int main(void) { return 0; }' -Wl,-z,lazy || CGO_LDFLAGS+=' -Wl,-z,lazy'
	export CC=$cc CGO_ENABLED=$([ -n "$tags" ] && echo 1 || echo 0)
}

# report prints the findings of detect, and the parts that a build leaves out.
report() {
	say "go    ${has_go:+$(go env GOVERSION) in $(go env GOROOT)}"
	say "cc    ${has_cc:+$($cc --version | head -n 1)}"
	say "mpi   $(served mpi && { "$mpicc" --showme:version 2>/dev/null || "$mpicc" -v 2>&1; } | head -n 1)"
	say "blas  $(served blas && echo "$blas")"
	say "tags  $tags"
	served blas || say 'left out: kernel/cpu, the kernels in C over OpenBLAS (kernel/ref, in Go, takes its place)'
	served mpi || say 'left out: comm/mpi, ranks as processes (ranks are goroutines of one process)'
}

# packages prints Debian's names of the packages that are wanted and missing.
packages() {
	[ -n "$has_go" ] || command -v go >/dev/null || echo golang-go
	[ -n "$has_go" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
	[ -n "$has_cc" ] || [ "${TAGS-blas mpi}" = '' ] || echo gcc libc6-dev
	served mpi || ! wanted mpi || echo openmpi-bin libopenmpi-dev
	served blas || ! wanted blas || echo libopenblas-dev pkg-config
}

# can_install: whether there is an apt that asks nothing.
can_install() { command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }

# install PACKAGE...: apt, where it exists and asks nothing.
install() {
	local root=''
	can_install || return 1
	[ "$(id -u)" = 0 ] || root='sudo -n'
	say "installing: $*"
	# Another apt may run, such as that of a machine that has just started.
	set -- -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends install "$@"
	$root env DEBIAN_FRONTEND=noninteractive apt-get -qq update &&
		$root env DEBIAN_FRONTEND=noninteractive apt-get "$@" >/dev/null
}

# deps returns 1, and says what to do, if something is still missing.
deps() {
	local list
	detect
	list=$(packages | xargs)
	if [ -n "$list" ] && install $list; then
		detect
		list=$(packages | xargs)
	fi
	report
	[ -n "$list" ] || [ -z "$has_go" ] || return 0
	say $'\nmissing. One of these brings it:'
	[ -z "$list" ] || say "  Debian, Ubuntu  apt-get install $list"
	cat >&2 <<END
  Fedora, RHEL    dnf install golang gcc openmpi-devel openblas-devel; module load mpi
  a cluster       module load go openmpi openblas (\`module avail\` shows their names here), or
                  MPICC=/path/to/mpicc BLAS_LIBS="-L/path/to/lib -lopenblas" CFLAGS=-I/path/to/include
  Go itself       $want_go or newer from https://go.dev/dl, unpacked as /usr/local/go or on PATH;
                  any Go from 1.19 on will do, where it can fetch $want_go from its module proxy
END
	return 1
}
