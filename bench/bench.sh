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

go test -run '^$' -bench . -tags "$TAGS" ./... | grep -v '\[no test files\]'
for what in step spmm; do
	bin/dynmo bench "$what"
done
