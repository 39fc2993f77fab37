#!/usr/bin/env bash
# faults.sh [ID]: runs the tests of faults, the long ones too, and prints a line for each
# fault, as src/expect/fault.go says, sorted; of those of kind ID (F19) alone. Behind them
# come those under Slurm, if it is installed. Needs what `./build.sh deps build` leaves.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
id=${1:-F}
eval "$(./build.sh env)"
source bench/mpi.sh
mpi_environment

# provenance prints what the seconds were measured on.
provenance() {
	echo "command: bench/faults.sh $*"
	echo "revision: $(git describe --always --dirty)"
	echo "date: $(date -u +%F)"
	echo "cpu: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
	echo 'detect: from the fault, or the last step recorded before it, to the end of the last process; recover: of the command that goes on'
	echo
}

# lines prints the lines of faults in what tests print.
lines() { grep -o "FAULT $id.*" | sort; }

# tested PACKAGE: prints the tests in those of a package's files that have tests of faults.
tested() { grep -l 'expect.NewFault\|crash{' "$1"/*_test.go | xargs sed -n 's/^func \(Test[A-Za-z0-9]*\)(.*/\1/p' | grep -v TestMain | paste -sd '|'; }

provenance "$@"
for package in $(grep -rl 'expect.NewFault' src --include='*_test.go' | xargs -n 1 dirname | sort -u); do
	DYNMO_LONG=1 go test -count=1 -v -timeout 60m -tags "$TAGS" -run "^($(tested "$package"))\$" "./$package" 2>&1
done | lines
jobs/test-cluster.sh need --no-accounting >/dev/null 2>&1 && jobs/test-slurm.sh 2>/dev/null | lines
