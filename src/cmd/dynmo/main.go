// Command dynmo trains transformer models in pipeline parallelism and keeps
// the pipeline full while the model changes.
package main

import (
	"os"
	"runtime/debug"

	_ "dynmo/src/kind" // every kind of dynamism
)

// init makes a crash end by a signal, SIGABRT or its own. Go's status for a crash is 2,
// which here says that the input is wrong. No handler catches what a crash of the runtime or
// of C does. Go initialises this package last, and none before it does work.
func init() { debug.SetTraceback("crash") }

func main() {
	os.Exit(execute(rootCommand(), os.Args[1:], os.Stdout, os.Stderr))
}
