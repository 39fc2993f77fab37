package main

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/expect"
	"dynmo/src/nodebench/verdict"
)

// onTwoHosts is a transport whose first two of three ranks are on one host.
type onTwoHosts struct{ comm.Transport }

func (t onTwoHosts) Peer(rank int) comm.Peer {
	return comm.Peer{World: rank, Host: []string{"here", "here", "there"}[rank], PID: 100 + rank}
}

// TestSiblings: the other ranks of a rank's own host are its siblings.
func TestSiblings(t *testing.T) {
	want := map[int][]int{0: {101}, 1: {100}, 2: nil}
	expect.OK(t, local.Run(3, func(tr comm.Transport) error {
		if got := newNodeWorld(onTwoHosts{tr}, 0).siblings(); !slices.Equal(got, want[tr.Rank()]) {
			return fmt.Errorf("rank %d: siblings %v, want %v", tr.Rank(), got, want[tr.Rank()])
		}
		return nil
	}))
}

// TestUndisturbed: all ranks repeat a measurement that one host's others disturbed, up to a bound.
func TestUndisturbed(t *testing.T) {
	for _, test := range []struct {
		disturbed int // measurements of rank 1
		measured  int
		busy      []string
	}{
		{0, 1, nil},
		{2, 3, nil},
		{9, 3, []string{"node1: others took 2 cores"}},
	} {
		expect.OK(t, local.Run(2, func(tr comm.Transport) error {
			watched, measured := 0, 0
			r := &recorder{node: fmt.Sprintf("node%d", tr.Rank()), watch: func() func(bool) string {
				watched++
				return func(bool) string {
					if tr.Rank() == 1 && watched <= test.disturbed {
						return "others took 2 cores"
					}
					return ""
				}
			}}
			busy, err := r.undisturbed(comm.New(tr, comm.Options{}), func() error { measured++; return nil })
			if err != nil || measured != test.measured || !slices.Equal(busy, test.busy) {
				return fmt.Errorf("rank %d: %d times, busy %v: %w", tr.Rank(), measured, busy, err)
			}
			return nil
		}))
	}
}

// TestSwept: the table of nccl-tests for one length (its doc/PERFORMANCE.md): algbw is bytes over seconds,
// and busbw of an allreduce is algbw·2·(ranks-1)/ranks.
func TestSwept(t *testing.T) {
	rows := swept("all", "net", "", "mpi_allreduce", 1<<20, 4, []float64{0.001, 0.002, 0.004}, 0, nil)
	if s := rows[0]; s.Check != "mpi_allreduce_1MiB" || s.Unit != "us" || s.Value != 2000 || s.Ranks != 4 || s.Bytes != 1<<20 ||
		!near(s.Algorithm, 0.524288) || !near(s.Bus, 0.786432) {
		t.Errorf("%+v %+v", s, s.Sweep)
	}
	if a, b := rows[1], rows[2]; a.Check != "mpi_allreduce_algbw" || !near(a.Value, 0.524288) || b.Check != "mpi_allreduce_busbw" || !near(b.Value, 0.786432) || a.Low > a.Value || a.High < a.Value {
		t.Errorf("%+v\n%+v", a, b)
	}
	two := append(swept("all", "net", "", "mpi_allreduce", 16, 4, []float64{1, 1}, 0, nil), rows...)
	var checks []string
	for _, r := range keepLongest(two) {
		checks = append(checks, r.Check)
	}
	if want := []string{"mpi_allreduce_16B", "mpi_allreduce_1MiB", "mpi_allreduce_algbw", "mpi_allreduce_busbw"}; !slices.Equal(checks, want) {
		t.Errorf("checks %v, want %v", checks, want)
	}
	busy := swept("all", "net", "", "mpi_allreduce", 16, 4, []float64{1, 1}, 0, []string{"a: others took 2 cores"})
	if r := busy[1]; r.Status != verdict.Busy || r.Note != "a: others took 2 cores" {
		t.Errorf("%+v", r)
	}
}

func near(got, want float64) bool { return got > want*(1-1e-9) && got < want*(1+1e-9) }
