package main

import (
	"os"
	"os/signal"
	"syscall"
)

// saveRequests returns a function that reports whether the process has been sent
// SIGUSR1 since the last call, and one that gives the signal back.
func saveRequests() (asked func() bool, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	return func() bool {
		select {
		case <-signals:
			return true
		default:
			return false
		}
	}, func() { signal.Stop(signals) }
}
