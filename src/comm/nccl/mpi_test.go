//go:build cuda && cgo && mpi

package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"dynmo/src/comm/commtest"
	"dynmo/src/comm/mpi"
	"dynmo/src/expect"
)

func init() {
	for _, c := range commtest.DeviceCases() {
		roles[c.Name] = func() error {
			tr, err := mpi.Start()
			if err != nil {
				return err
			}
			if err := gpus.Run(tr, c.Run); err != nil {
				return fmt.Errorf("rank %d: %w", tr.Rank(), err) // mpirun ends the others then
			}
			return errors.Join(tr.Close(), mpi.Stop())
		}
	}
}

// Ranks that are processes, each with the communicators of its groups.
func TestProcesses(t *testing.T) {
	const ranks = 3
	skipWithout(t, ranks)
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	for _, name := range []string{"Ring", "Neighbours", "Exchange", "UpTo", "CloseAndSplit"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, mpirun, "-np", fmt.Sprint(ranks), os.Args[0])
			cmd.Env = append(append(os.Environ(), expect.Launcher()...), roleVariable+"="+name)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
