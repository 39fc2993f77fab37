#!/usr/bin/env bash
# Every benchmark, as Go benchmark text with the lines that say where the
# numbers come from: `./build.sh bench | tee results/NAME.txt`, then benchstat.
set -euo pipefail
cd "$(dirname "$0")/.."

printf 'commit: %s\n' "$(git describe --always --dirty 2>/dev/null || echo unknown)"
printf 'date: %s\n' "$(date -u +%FT%TZ)"
printf 'go: %s\n' "$(go env GOVERSION)"
printf 'tags: %s\n' "$TAGS"
printf 'cores: %s\n' "$(nproc)"
printf 'load: %s\n' "$(cut -d ' ' -f 1 /proc/loadavg)" # at rest it is near 0

status=0
go test -run '^$' -bench . -tags "$TAGS" ./... | grep -v '\[no test files\]' || status=1
# How far diffusion ends above the optimum: 1,000 chains of each kind and size.
DYNMO_LONG=1 go test -count=1 -run '^TestDiffusionGap$' -v -tags "$TAGS" ./src/balance || status=1
for what in gemm step spmm schedule checkpoint sample; do
	bin/dynmo bench "$what" || status=1 # wrong, or short of what it should reach
done
case " ${TAGS//,/ } " in
*" mpi "*) mpirun -np 2 bin/dynmo bench net || status=1 ;;
esac
exit "$status"
