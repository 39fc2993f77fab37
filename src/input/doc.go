// Package input opens files from outside. A path comes in. A file of the wanted kind and within a
// bound goes out, or one error that names it. The package reads files of one JSON value a line,
// whose last line may be torn. It refuses unknown keys, and makes foreign text fit for a terminal.
package input
