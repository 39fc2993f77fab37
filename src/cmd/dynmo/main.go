// Command dynmo trains transformer models in pipeline parallelism and keeps
// the pipeline full while the model changes.
package main

import "os"

func main() {
	os.Exit(execute(rootCommand(), os.Args[1:], os.Stdout, os.Stderr))
}
