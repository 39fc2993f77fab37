// Command dynmo trains transformer models in pipeline parallelism and keeps
// the pipeline full while the model changes.
package main

import (
	"os"
	"runtime/debug"
	"strings"

	"dynmo/src/comm/mpi"
	_ "dynmo/src/kind" // every kind of dynamism
)

// init makes a crash end by a signal: SIGABRT or its own. Go's exit status of a crash is 2, which
// here means wrong input. No handler can catch crashes of the runtime or of C code. Go initialises
// this package last, and no other package does work in its init.
func init() { debug.SetTraceback("crash") }

func main() {
	leaveNothing()
	exit(execute(rootCommand(), os.Args[1:], os.Stdout, os.Stderr))
}

// exit ends the process, as its MPI wants where it had one.
func exit(status int) {
	mpi.Exit(status)
	os.Exit(status)
}

// commandLine joins words into a line that a shell splits into the same words.
func commandLine(words []string) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = word
		if word == "" || strings.ContainsFunc(word, isSpecial) {
			list[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// isSpecial reports whether a character may have a special meaning in a shell.
func isSpecial(r rune) bool {
	plain := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_=+,./:@%", r)
	return !plain
}

// setWords returns the --set words of a command line.
func setWords(sets []string) []string {
	var words []string
	for _, set := range sets {
		words = append(words, "--set", set)
	}
	return words
}
