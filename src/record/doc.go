// Package record keeps what a run did. In come the resolved settings, one
// Metrics a step and one Event for every change of model or layout; out go the
// files of a run directory, and log lines or a progress bar for people.
package record
