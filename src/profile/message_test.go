package profile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/trace"
)

// TestInstructions: the first stage gets the instructions of every stage, bit for
// bit, however many there are.
func TestInstructions(t *testing.T) {
	want := [][]trace.Span{
		{{Op: trace.F, Layer: -1, Microbatch: 70000, Start: 0.1, End: 1.0 / 3}, {Op: trace.B, Layer: -1, Chunk: 2, Start: 1e9, End: 1e9 + 1e-6}},
		nil,
		{{Op: trace.W, Layer: -1, Chunk: 1, Microbatch: 3, Start: 5, End: 6}},
	}
	err := local.Run(3, func(tr comm.Transport) error {
		got, err := instructions(comm.New(tr, comm.Options{}), want[tr.Rank()])
		if tr.Rank() > 0 && got != nil {
			t.Errorf("rank %d: %v, want nothing", tr.Rank(), got)
		}
		if diff := cmp.Diff(want, got); tr.Rank() == 0 && diff != "" {
			t.Error(diff)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
