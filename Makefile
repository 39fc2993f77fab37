# Every target is a command of build.sh; see `./build.sh help`.
commands = build cuda deps demo test test-long bench clean

.PHONY: $(commands) format
$(commands):
	@./build.sh $@

format:
	gofmt -w src
