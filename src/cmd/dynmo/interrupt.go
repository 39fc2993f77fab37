package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/files"
)

// signalError is the cause of the end of a context that a signal cancelled.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return fmt.Sprintf("stopped by signal: %v", e.Signal) }

// explain says what the signal does to a run. saves reports whether the run keeps checkpoints, and
// openMPI whether Open MPI's mpirun started it.
func (e signalError) explain(saves, openMPI bool) string {
	text := unix.SignalName(e.Signal.(syscall.Signal)) + ": the run ends after this step"
	if saves {
		text += ", with a checkpoint"
	}
	switch {
	case openMPI && e.Signal != syscall.SIGUSR2:
		text += ", or when mpirun kills the ranks, at most a second after it got the signal: kill -USR2 to mpirun sets no deadline"
	case e.Signal == syscall.SIGINT:
		text += "; a second Ctrl-C ends it at once"
	}
	return text
}

// samePress is the time within which two SIGINTs count as one press of Ctrl-C. Both the terminal
// and the launcher may send one to a rank.
const samePress = 500 * time.Millisecond

// interruptible returns a context that SIGTERM, SIGINT, SIGHUP or SIGUSR2 cancels, with the signal
// as its cause. Callers check the context between steps, so a step that has begun ends. A batch
// system repeats SIGTERM, so only the first counts. A second Ctrl-C ends the process at once. Open
// MPI's mpirun forwards SIGUSR2 and sets no deadline, as it does for the others. If SIGHUP was
// ignored, as under nohup, it stays ignored. stop restores the signals.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(parent)
	handled.Add(1)
	go watch(signals, cancel, func() { quit(128 + int(syscall.SIGINT)) })
	return ctx, func() {
		handled.Add(-1)
		signal.Stop(signals)
		close(signals)
		cancel(nil)
	}
}

// handled is the number of interruptible contexts in use.
var handled atomic.Int32

// leaveNothing makes SIGINT, SIGTERM and SIGHUP remove temporary files before they end the process,
// unless a context handles them. A signal that was ignored stays ignored.
func leaveNothing() {
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		for s := range signals {
			if handled.Load() == 0 {
				files.Abandon()
				signal.Reset(s)
				_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
			}
		}
	}()
}

// quit ends the process at once, without temporary files.
func quit(status int) {
	files.Abandon()
	os.Exit(status)
}

// watch cancels on the first signal. It calls quit on a SIGINT that comes later than samePress
// after the first SIGINT. It returns when signals is closed.
func watch(signals <-chan os.Signal, cancel context.CancelCauseFunc, quit func()) {
	var pressed time.Time
	for s := range signals {
		cancel(signalError{s})
		switch {
		case s != syscall.SIGINT:
		case pressed.IsZero():
			pressed = time.Now()
		case time.Since(pressed) > samePress:
			quit()
		}
	}
}

// saveRequests returns two functions. asked reports whether the process has received SIGUSR1 since
// the last call. stop restores the signal.
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
