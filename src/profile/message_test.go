package profile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/expect"
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
	expect.OK(t, err)
}

// TestReportRoundTrip: all that a report has arrives, bit for bit, and nothing
// else.
func TestReportRoundTrip(t *testing.T) {
	full := report{
		own:       Own{Memory: Memory{Resident: 1 << 52, Kept: -3}, Joules: -1, Balancing: 1.0 / 3},
		summaries: []trace.Summary{{Busy: []float64{2}, Start: math.Inf(1), End: math.Inf(-1), Finish: 4}, {Busy: []float64{5}}},
		layers: []layerReport{
			{id: 7, cost: cost.Layer{Forward: 1, BackwardInput: 2, BackwardWeight: 3, NonZeros: 4, Output: 5, Bytes: cost.Bytes{
				Parameters: 6, Gradients: 7, Optimizer: 8, Workspace: 9, Activations: 10, Held: 11,
			}}, samples: []cost.Stage{{Forward: 0.1, Input: 0.2, Weight: 0.3}, {}}},
			{id: 8},
		},
		counts: []cost.Count{{Name: "tokens é", Layer: 1, Microbatch: 2, Values: []int64{1 << 40, -1}}, {}},
	}
	for _, want := range []report{full, {}} {
		got := unpack([][]byte{pack(&want, (*message).report)}, (*message).report)
		if diff := cmp.Diff([]report{want}, got, cmp.AllowUnexported(report{}, layerReport{}, value{})); diff != "" {
			t.Error(diff)
		}
	}
}
