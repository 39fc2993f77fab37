package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"dynmo/src/expect"
)

func TestWatch(t *testing.T) {
	type event struct {
		after  time.Duration
		signal os.Signal
	}
	const later = samePress + time.Millisecond
	for _, c := range []struct {
		name   string
		events []event
		cause  string
		quits  int
	}{
		{"SIGTERM", []event{{0, syscall.SIGTERM}}, "stopped by signal: terminated", 0},
		{"SIGTERM twice", []event{{0, syscall.SIGTERM}, {5 * time.Millisecond, syscall.SIGTERM}}, "stopped by signal: terminated", 0},
		{"SIGTERM, much later again", []event{{0, syscall.SIGTERM}, {time.Minute, syscall.SIGTERM}}, "stopped by signal: terminated", 0},
		{"SIGINT", []event{{0, syscall.SIGINT}}, "stopped by signal: interrupt", 0},
		{"one press delivered twice", []event{{0, syscall.SIGINT}, {time.Millisecond, syscall.SIGINT}}, "stopped by signal: interrupt", 0},
		{"two presses", []event{{0, syscall.SIGINT}, {later, syscall.SIGINT}}, "stopped by signal: interrupt", 1},
		{"SIGINT behind SIGTERM", []event{{0, syscall.SIGTERM}, {later, syscall.SIGINT}}, "stopped by signal: terminated", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its clock jumps over the waits
				ctx, cancel := context.WithCancelCause(t.Context())
				signals := make(chan os.Signal)
				quits := 0
				go watch(signals, cancel, func() { quits++ })
				for _, e := range c.events {
					time.Sleep(e.after)
					signals <- e.signal
				}
				close(signals)
				synctest.Wait()
				if got := context.Cause(ctx); got == nil || got.Error() != c.cause {
					t.Errorf("cause %v, want %s", got, c.cause)
				}
				if quits != c.quits {
					t.Errorf("quit %d times, want %d", quits, c.quits)
				}
			})
		})
	}
}

func TestInterruptibleCatchesSIGTERM(t *testing.T) {
	ctx, stop := interruptible(t.Context())
	defer stop()
	if ctx.Err() != nil {
		t.Fatal("cancelled before any signal")
	}
	expect.OK(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Error("SIGTERM does not cancel")
	}
}
