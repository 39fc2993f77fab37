// Package record writes and reads the files of a run. In come the resolved settings, one
// Metrics a step and one Event for every change of model or layout; out go the
// files of a run directory, and log lines or a progress bar for people. A run directory
// is one process's at a time, and of one run, however often that was started.
package record
