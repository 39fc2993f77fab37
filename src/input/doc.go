// Package input opens what comes from outside: a path comes in, a file of the
// wanted kind and within a bound goes out, or one error that names it. It reads
// files of one JSON value a line of which the last may be torn, refuses keys
// that mean nothing, and makes foreign text fit for a terminal.
package input
