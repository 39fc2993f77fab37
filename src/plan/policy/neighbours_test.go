package policy

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/expect"
	"dynmo/src/partition"
)

// TestNeighbours: only the first stage knows the problem. It calls the others, and gets the cuts
// and the record of a diffusion in memory, for each of several problems. Then all stages learn its
// conclusion. No cuts fit the last problem.
func TestNeighbours(t *testing.T) {
	problems := []balance.Problem{
		{Stages: 3, Seconds: []float64{5, 1, 1, 1, 1, 1, 1.0 / 3}},
		{Stages: 3, Seconds: []float64{1, 1, 1, 1, 2, 2, 7}, StaticBytes: []int64{3, 1, 1, 1, 1, 1, 9}, Capacity: []int64{12, 12, 12}, InFlight: []int{3, 2, 1}},
		{Stages: 3, Seconds: []float64{1, 1, 1, 1, 1, 1, 1}, StaticBytes: []int64{9, 9, 9, 9, 9, 9, 9}, Capacity: []int64{10, 10, 10}},
	}
	present := partition.Partition{0, 3, 5, 7}
	err := local.Run(3, func(tr comm.Transport) error {
		g := comm.New(tr, comm.Options{})
		n := Neighbours{Stages: g}
		if tr.Rank() > 0 {
			text, err := n.Conclude(nil)
			if string(text) != "so it is" {
				t.Errorf("stage %d is told %q", tr.Rank(), text)
			}
			return err
		}
		for _, p := range problems {
			cuts, d, err := n.diffuse(p, present, balance.DiffusionOptions{})
			want, record, failed := balance.Diffusion(p, present, balance.DiffusionOptions{})
			if err != nil || failed != nil {
				if p.Capacity == nil || fmt.Sprint(err) != fmt.Sprint(failed) {
					t.Errorf("error %v, want %v", err, failed)
				}
				continue
			}
			if !cuts.Equal(want.Cuts) || cuts.Equal(present) || d.Rounds != record.Rounds || d.Sweeps != record.Sweeps || !slices.Equal(d.Squares, record.Squares) {
				t.Errorf("cuts %v, %+v, want %v, %+v", cuts, d, want.Cuts, record)
			}
		}
		_, err := n.Conclude([]byte("so it is"))
		return err
	})
	expect.OK(t, err)
}
