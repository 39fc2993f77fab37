// Package trainerlogs turns what other trainers print into the seconds of layers. In come a log, a folder
// of traces or a table, and the layout of the run. Out come the seconds of each layer for one microbatch,
// their standard errors, and the kinds of layers that the layout does not separate.
package trainerlogs
