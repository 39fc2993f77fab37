// Package record writes and reads the files of a run. The input is the resolved settings, one
// Metrics for each step, and one Event for every change of model or layout. The output is the files
// of a run directory, and log lines or a progress bar for users. Only one process at a time may
// write into a run directory. A directory has the records of one run with all its restarts.
package record
