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

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
)

func init() {
	for name, program := range programs {
		roles[name] = func() error {
			tr, err := mpi.Start()
			if err != nil {
				return err
			}
			if err := onGPU(tr, program); err != nil {
				return err // what mpirun does then is end the others
			}
			return errors.Join(tr.Close(), mpi.Stop())
		}
	}
}

// programs are what ranks run that are processes.
var programs = map[string]func(*rank) error{"ring": ring, "all pairs": allPairs, "split": splits}

// Ranks that are processes, each with the lanes of its groups.
func TestProcesses(t *testing.T) {
	const ranks = 3
	skipWithout(t, ranks)
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	for name := range programs {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, mpirun, "-np", fmt.Sprint(ranks), "--oversubscribe", "--bind-to", "none", os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"="+name,
				"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1") // containers
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// splits runs a ring in all ranks but the last, again and again: lanes are made
// anew for every group.
func splits(r *rank) error {
	for range 3 {
		color := 0
		if r.Rank() == r.Size()-1 {
			color = 1
		}
		tr, err := r.Transport.Split(color, 0)
		if err != nil {
			return err
		}
		if err := onPart(r, tr); err != nil {
			return err
		}
		if err := tr.Close(); err != nil {
			return err
		}
	}
	return r.c.Close()
}

// onPart runs a ring in a part of a rank's world.
func onPart(r *rank, tr comm.Transport) error {
	c, err := New(tr, r.d, r.compute)
	if err != nil {
		return err
	}
	part := &rank{Transport: tr, d: r.d, compute: r.compute, c: c.(*carrier)}
	err = ring(part)
	r.held = append(r.held, part.held...)
	return err
}
