package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
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

func TestSignalExplained(t *testing.T) {
	const ends = ": the run ends after this step"
	for _, c := range []struct {
		signal         syscall.Signal
		saves, openMPI bool
		want           string
	}{
		{syscall.SIGTERM, true, false, "SIGTERM" + ends + ", with a checkpoint"},
		{syscall.SIGTERM, false, false, "SIGTERM" + ends},
		{syscall.SIGINT, true, false, "SIGINT" + ends + ", with a checkpoint; a second Ctrl-C ends it at once"},
		{syscall.SIGUSR2, true, true, "SIGUSR2" + ends + ", with a checkpoint"},
		{syscall.SIGTERM, true, true, "SIGTERM" + ends + ", with a checkpoint, or when mpirun kills the ranks, at most a second after it got the signal: kill -USR2 to mpirun sets no deadline"},
	} {
		if got := (signalError{c.signal}).explain(c.saves, c.openMPI); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestInterruptibleCatchesSignals: a signal that ends a run becomes the cause of the context's end.
// If SIGHUP was ignored before, as under nohup, it ends nothing.
func TestInterruptibleCatchesSignals(t *testing.T) {
	for _, c := range []struct {
		name   string
		nohup  bool
		signal syscall.Signal
		cause  string
	}{
		{"SIGTERM", false, syscall.SIGTERM, "stopped by signal: terminated"},
		{"SIGHUP", false, syscall.SIGHUP, "stopped by signal: hangup"},
		{"SIGUSR2", false, syscall.SIGUSR2, "stopped by signal: user defined signal 2"},
		{"SIGHUP under nohup", true, syscall.SIGHUP, "stopped by signal: terminated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.signal == syscall.SIGHUP && !c.nohup && signal.Ignored(syscall.SIGHUP) {
				t.Skip("this test runs under nohup")
			}
			if c.nohup {
				signal.Ignore(syscall.SIGHUP)
				defer signal.Reset(syscall.SIGHUP)
			}
			ctx, stop := interruptible(t.Context())
			defer stop()
			if ctx.Err() != nil {
				t.Fatal("cancelled before any signal")
			}
			expect.OK(t, syscall.Kill(os.Getpid(), c.signal))
			if c.nohup {
				expect.OK(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("nothing cancels")
			}
			if got := context.Cause(ctx).Error(); got != c.cause {
				t.Errorf("cause %q, want %q", got, c.cause)
			}
		})
	}
}

// TestSignalsLeaveNothing: a signal ends an export, and nothing of it remains. An export that is
// faster than the signal is repeated.
func TestSignalsLeaveNothing(t *testing.T) {
	source := hfModel(t, 50304, 8, 256, false)
	dir := t.TempDir()
	said(t, "ckpt", "import", source, "-o", filepath.Join(dir, "w"))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for tries, ended := 0, syscall.Signal(-1); ended != s; tries++ {
			if tries == 20 {
				t.Fatalf("%v: no export ended by it", s)
			}
			expect.OK(t, os.RemoveAll(filepath.Join(dir, "hf")))
			cmd := alone.command(t, dir, "ckpt", "export", "w", "-o", "hf")
			expect.OK(t, cmd.Start())
			for began, left := time.Now(), []string(nil); left == nil && time.Since(began) < time.Second; { // a hidden directory
				left, _ = filepath.Glob(filepath.Join(dir, ".hf.*"))
			}
			expect.OK(t, cmd.Process.Signal(s))
			_ = cmd.Wait()
			ended = cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
			if left, _ := filepath.Glob(filepath.Join(dir, ".*")); left != nil {
				t.Fatalf("%v: left behind: %v", s, left)
			}
		}
	}
}
