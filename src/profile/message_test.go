package profile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/trace"
)

// TestReportRoundTrip: all that a report has arrives, bit for bit, and nothing
// else.
func TestReportRoundTrip(t *testing.T) {
	names := []dynamic.Counts{{Name: "left"}, {Name: "tokens"}}
	full := report{
		own:       Own{Memory: Memory{Resident: 1 << 52, Kept: -3}, Joules: -1, Balancing: 1.0 / 3},
		summaries: []trace.Summary{{Busy: []float64{2}, Start: math.Inf(1), End: math.Inf(-1), Finish: 4}, {Busy: []float64{5}}},
		layers: []layerReport{
			{id: 7, cost: cost.Layer{Forward: 1, BackwardInput: 2, BackwardWeight: 3, NonZeros: 4, Output: 5, Bytes: cost.Bytes{
				Parameters: 6, Gradients: 7, Optimizer: 8, Workspace: 9, Activations: 10, Held: 11,
			}}, samples: []cost.Stage{{Forward: 0.1, Input: 0.2, Weight: 0.3}, {}}},
			{id: 8},
		},
		counts:       []cost.CountSum{{Name: "tokens", Layer: 1, Microbatches: 2, Values: []int64{1 << 62, -1}, Peaks: 5}, {Name: "left"}},
		instructions: []trace.Span{{Op: trace.F, Layer: -1, Microbatch: 70000, Start: 0.1, End: 1.0 / 3}, {Op: trace.B, Layer: -1, Chunk: 2, Start: 1e9, End: 1e9 + 1e-6}},
	}
	for _, want := range []report{full, {}} {
		got := unpack(names, pack(names, want, (*message).report), (*message).report)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(report{}, layerReport{}, value{})); diff != "" {
			t.Error(diff)
		}
	}
}
