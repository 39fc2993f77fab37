# Every target is a command of build.sh; see `./build.sh help`.
commands = help deps build cuda demo demo-bpe test test-long test-slurm bench env clean

.PHONY: $(commands) format
$(commands):
	@./build.sh $@

format:
	gofmt -w src
