#!/usr/bin/env bash
# Builds, tests and shows dynmo. `./build.sh help` lists the commands.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
	cat <<'END'
usage: ./build.sh COMMAND

  deps       find Go, a C compiler, Open MPI and OpenBLAS; install with apt what
             is missing (as root, or with sudo that asks nothing), else say what to load
  build      bin/dynmo, with what this machine can serve
  cuda       bin/dynmo, bin/dynmo-cuda and lib/libdynmo_cuda.so, for NVIDIA GPUs; where there
             is no CUDA toolkit and apt can install Debian's, 1.6 GB, asks first; --yes answers
  demo       deps, build, then the main job: six short runs, one table, a verdict and a report
  demo-bpe   the same with GPT-2's vocabulary, the head whole and in slices
  test       deps, a browser and Slurm, then every test but the long ones; of jobs under Slurm one.
             Tests of CUDA run where there is a toolkit; asks, as cuda does, before it installs one
  test-long  deps, then every test
  test-on    SUITE... [-- COMMAND...]: demo and test, or another command, in a bare Debian of
             that name (bookworm, trixie, forky), which debootstrap makes in build/_suites; as root;
             about 8 minutes and 4 GB a system on two idle cores
  test-slurm deps, build, Slurm (munge, slurmdbd, MariaDB), then jobs/train.sbatch and grow.sbatch on
             a cluster of this host's own: a quarter of an hour; a word after it chooses tests by name
  bench      build, then the benchmarks
  figures    build, then the figures of the scaling study, from kept results, into build/figures
  env        print the settings of a build: eval "$(./build.sh env)"; go test -tags "$TAGS" ./...
             env cuda: with the tag cuda, for a GPU, or for the emulator, which it builds
  clean      remove bin, build and lib

overrides: MPICC, CC, CFLAGS, LDFLAGS, BLAS_LIBS ("-L/opt/lib -lopenblas"), and
TAGS (of blas and mpi; TAGS= builds pure Go, without a C compiler); for cuda also NVCC,
NVCCFLAGS, CUDA_HOME, ARCHS ("80 90") and JOBS (2 files of csrc/cuda at a time)
END
}

source bench/machine.sh
source bench/mpi.sh
source bench/cuda.sh

build() {
	go build -trimpath -tags "$tags" -ldflags "-X main.version=$(revision)" -o bin/dynmo ./src/cmd/dynmo
	[ -n "${GOOS:-}${GOARCH:-}" ] || bin/dynmo version >/dev/null || { say 'bin/dynmo does not start here: see the line above'; return 1; }
	say "built bin/dynmo $(revision)"
}

# with_mpirun: the mpirun of this mpicc starts more ranks than cores. The folder of mpicc may
# have an older Go.
with_mpirun() {
	mpi_environment
	[ -z "$mpicc" ] || export PATH="$(dirname "$(command -v go)"):$(dirname "$mpicc"):$PATH"
}

# browser finds or installs one for the test of the page that `dynmo report` writes.
browser() {
	command -v chromium >/dev/null || install chromium || say 'no chromium: the page of dynmo report is not opened'
}

# slurm [--no-accounting] finds or installs the programs of a cluster on this host. It
# starts no service.
slurm() {
	local packages=(munge slurm-client slurmctld slurmd)
	[ $# != 0 ] || packages+=(slurmdbd mariadb-server-core mariadb-client-core shellcheck)
	jobs/test-cluster.sh need "$@" >/dev/null || install "${packages[@]}" || true
	jobs/test-cluster.sh need --no-accounting >/dev/null ||
		{ say "SKIP jobs/train.sbatch under Slurm: no $(jobs/test-cluster.sh need --no-accounting)"; return 1; }
}

# smoke runs one job that gives nodes back, on a cluster of this host's own.
smoke() {
	slurm --no-accounting || return 0
	jobs/test-slurm.sh --smoke
}

# part NAME COMMAND...: runs one part of the tests and remembers its failure. It prints the
# time of the part, and its CPU time of user and system.
part() {
	local name=$1 TIMEFORMAT="== $1: %0R s, CPU %0U + %0S s"
	shift
	say "== $name"
	time "$@" || failed+=" [$name]"
}

formatted() {
	local files
	files=$(gofmt -l src)
	[ -z "$files" ] || { say "gofmt would change: $files"; return 1; }
}

# staticchecked: runs staticcheck, with the checks of staticcheck.conf, where Go can fetch it.
staticchecked() {
	GOBIN=$PWD/build/bin go install honnef.co/go/tools/cmd/staticcheck@v0.8.2 ||
		{ say 'staticcheck cannot be fetched: skipped'; return 0; }
	build/bin/staticcheck ${tags:+-tags "$tags"} ./...
}

# package_files FLAG...: prints every package and its files under these flags.
package_files() { go list -f '{{.ImportPath}} {{.GoFiles}} {{.CgoFiles}} {{.TestGoFiles}} {{.XTestGoFiles}}' "$@" ./... | sort; }

# pure_packages prints the packages that have files only in pure Go. vet sees all other
# packages' files with the tags.
pure_packages() {
	comm -23 <(CGO_ENABLED=0 package_files) <([ -z "$tags" ] || package_files -tags "$tags") | cut -d ' ' -f 1
}

# tagged_packages prints the packages that depend on the tags by their files, or by those of
# an imported package. The other packages are the same code as in pure Go.
tagged_packages() {
	local changed
	changed=$(comm -3 <(CGO_ENABLED=0 package_files) <(package_files -tags "$tags") |
		awk '{print $1}' | sort -u | paste -sd '|')
	go list -tags "$tags" -test -f '{{or .ForTest .ImportPath}} {{.ImportPath}}{{range .Deps}} {{.}}{{end}} ' ./... |
		grep -E " ($changed) " | cut -d ' ' -f 1 | grep -v '\.test$' | sort -u
}

# sanitized TIMEOUT: tests the C sides with sanitizers for accesses outside of memory and
# for undefined behaviour. Go's code has none: that would take minutes. The Go heap has the
# sanitizer's marks, because C gets pointers into it.
sanitized() {
	CGO_CFLAGS="$CGO_CFLAGS -fsanitize=undefined -fno-sanitize-recover=undefined" \
		CGO_LDFLAGS="$CGO_LDFLAGS -fsanitize=undefined" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		go test -asan -gcflags=all=-asan=false -count=1 -timeout "$1" -tags "$tags" \
		-run 'Conformance|Tails|NaN|Outside|Tokens|Threads|Suite|Roles' ./src/kernel/cpu ./src/comm/mpi
}

# test_pure TIMEOUT: runs every test in pure Go if this machine serves no tags. With tags it
# leaves out the tests that another pass repeats as a whole. Command, trainings and
# measurements run with kernels in C, comm/local and pipeline with the race detector. Whole
# trainings with pure Go's kernels remain in law 1, law 2 and the test of all kinds at once.
# Without MPI, commands that want several ranks are refused.
test_pure() {
	local again='/src/(cmd/dynmo|launch|nodebench|comm/local|pipeline)$' status=0
	if [ -z "$tags" ] || [ -n "${DYNMO_LONG:-}" ]; then
		CGO_ENABLED=0 go test -vet=off -count=1 -timeout "$1" ${tags:+-short} ./...
		return
	fi
	CGO_ENABLED=0 go test -vet=off -count=1 -timeout "$1" -short $(go list ./... | grep -vE "$again") || status=1
	CGO_ENABLED=0 go test -vet=off -count=1 -timeout "$1" -short \
		-run '^Test(TrainPlacementChangesNothing|Laws|SchedulesAndMeshes|KindsThatChangeNothing|BenchNetRefuses|TrainRefusesToBeAlone)$' ./src/cmd/dynmo ./src/launch || status=1
	return $status
}

# run_tests TIMEOUT: runs every part, also after a failure. The pass with tags, with kernels
# in C, runs the cases that tests leave out under -short. The race detector needs fewer cases
# to see how goroutines meet. All parts have the same flags, CUDA's too, so that no package
# is compiled twice. vet runs apart from the tests and sees a file once.
run_tests() {
	local failed=''
	with_mpirun
	[ -z "${TAGS-blas mpi}" ] || [ -z "$has_cc" ] || [ -z "$toolkit" ] || ! want_nvcc || cuda_go
	export GOFLAGS="${GOFLAGS:-} -trimpath" GOGC=${GOGC:-400}
	part 'build' build
	part 'gofmt' formatted
	part 'staticcheck' staticchecked
	part 'vet, pure Go' env CGO_ENABLED=0 go vet $(pure_packages)
	part 'test, pure Go' test_pure "$1"
	if [ -n "$tags" ]; then
		part "vet, $tags" go vet -tags "$tags" ./...
		part "test, $tags" go test -vet=off -count=1 -timeout "$1" -tags "$tags" $(tagged_packages)
	fi
	case " $tags " in *' mpi '*) part 'a job under Slurm' smoke ;; esac
	if [ -n "$has_cc" ]; then # which does not see tensors: they lie outside of Go's heap
		part 'race detector' env CGO_ENABLED=1 go test -vet=off -race -gcflags=dynmo/src/kernel/ref=-race=false $([ -n "${DYNMO_LONG:-}" ] || echo -short) -count=1 -timeout "$1" ./src/comm/local ./src/pipeline
	fi
	if [ -n "$tags" ] && [ -n "${DYNMO_LONG:-}" ]; then
		if links 'int main(void) { return 0; }' -fsanitize=address,undefined; then
			part 'sanitizers' sanitized "$1"
		else
			say 'no sanitizers: csrc is not tested with them'
		fi
	fi
	if [ -n "$tags" ] && [ -n "${DYNMO_LONG:-}" ]; then
		part 'random faults' env DYNMO_CHAOS="${DYNMO_CHAOS:-60}" go test -count=1 -timeout 0 -tags "$tags" -run TestTrainChaos ./src/cmd/dynmo
	fi
	[ -z "${TAGS-blas mpi}" ] || test_cuda "$1"
	report
	[ -z "$failed" ] || { say "FAILED:$failed"; return 1; }
}

case ${1:-help} in
deps) deps ;;
build) detect; report; build ;;
cuda)
	takes_yes "$@"
	detect
	agree_cuda "$@" || exit 2
	report
	[ -n "$has_cc" ] && want_nvcc || missing_nvcc
	cuda_go
	build
	cuda_build
	cuda_library
	;;
demo) deps; build; with_mpirun; exec bench/demo.sh ;;
demo-bpe) deps; build; with_mpirun; exec bench/bpe.sh ;;
test | test-long)
	takes_yes "$@"
	deps || say 'testing what is here'
	browser
	toolkit=yes
	[ -z "${TAGS-blas mpi}" ] || agree_cuda "$@" || toolkit=''
	if [ "$1" = test ]; then run_tests 30m; else DYNMO_LONG=1 run_tests 90m; fi
	;;
test-on) exec bench/suite.sh "${@:2}" ;;
test-slurm)
	deps || say 'testing what is here'
	build
	slurm || { say 'nothing was tested'; exit 1; }
	exec jobs/test-slurm.sh "${@:2}"
	;;
figures) detect; report; build; exec bin/dynmo figures -o build/figures "${@:2}" ;;
bench) detect; report; build; with_mpirun; TAGS=$tags exec bench/bench.sh ;;
env)
	detect
	TAGS=$tags
	if [ "${2:-}" = cuda ]; then
		find_nvcc || missing_nvcc
		cuda_go
		TAGS="$tags${tags:+ }cuda"
		cuda_driver >&2
		cuda_environment | sed 's/^/export /'
	fi
	for name in PATH CC CGO_ENABLED CGO_CFLAGS CGO_LDFLAGS TAGS; do
		printf 'export %s=%q\n' "$name" "${!name}"
	done
	;;
clean) rm -rf bin build lib ;;
help | -h | --help) usage ;;
*) usage >&2; exit 2 ;;
esac
