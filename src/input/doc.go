// Package input opens files that come from outside. The input is a path. The output is a file of
// the wanted kind within a bound on its size, or one error that names the file. The package also
// reads files with one JSON value for each line, whose last line may be torn. It refuses unknown
// keys, and makes foreign text safe for a terminal.
package input
