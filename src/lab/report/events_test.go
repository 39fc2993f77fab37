package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/record"
)

// TestEventRows: a sentence for each event, in numbers that can be read.
func TestEventRows(t *testing.T) {
	r := Run{Metrics: []record.Metrics{{Step: 0, LayersPerStage: []int{4, 3}}, {Step: 30, LayersPerStage: []int{5, 2}}}}
	kept := func(step int, gap float64) record.Event {
		return record.Event{Step: step, Kind: record.Balance, Before: 0.1889477910000017, Predicted: 0.1889477910000017, Seconds: 0.001,
			Detail: map[string]any{"bottleneck": 0.009085562000000047, "cuts": []any{0., 4., 7.}, "gap": gap, "optimum": 0.009085562}}
	}
	weighed := func(step int, kept string, gain float64) record.Event {
		e := record.Event{Step: step, Kind: record.Balance, Before: 0.2, Predicted: 0.18, After: 0.19, Detail: map[string]any{"gain": gain}}
		if kept != "" {
			e.Detail["kept"] = kept
		}
		return e
	}
	r.Events = []record.Event{
		kept(4, 0), kept(9, 0.0234567890123),
		{Step: 20, Kind: record.Dynamic, Seconds: 0.026034828999996762, Detail: map[string]any{
			"what": "prune", "sparsity": 0.5203124152289497, "target_sparsity": 0.5203125, "kept": 1131725., "prunable": 2359296.}},
		kept(24, 0.0001),
		{Step: 29, Kind: record.Migrate, Bytes: 4758528, Seconds: 0.003, Detail: map[string]any{"layers": 2., "cuts": []any{0., 5., 7.}}},
		{Step: 29, Kind: record.Balance, Before: 0.20624309260000828, Predicted: 0.19391501204375378, After: 0.159475, Seconds: 0.001},
		{Step: 34, Kind: record.Migrate, Bytes: 12, Seconds: 0.003, Detail: map[string]any{"layers": 1.}},
		{Step: 34, Kind: record.Balance, Before: 0.2, Predicted: 0.1, Seconds: 0.001},
		{Step: 36, Kind: record.Migrate, Bytes: 1500},
		{Step: 39, Kind: record.Balance, Detail: map[string]any{"kept": "stage 1 needs 3 bytes"}},
		weighed(44, "uncertain", 0.0234), weighed(49, "uncertain", 0.0123), weighed(54, "price", 0.0123), weighed(59, "best", 0), weighed(64, "", 0.1),
		{Step: 40, Kind: record.Dynamic, Detail: map[string]any{"what": "freeze", "layers": 3.}},
		{Step: 41, Kind: record.Dynamic, Detail: map[string]any{"what": "exit", "left_over": 0.123456789}},
		{Step: 42, Kind: record.Dynamic, Detail: map[string]any{"what": "exit"}},
		{Step: 43, Kind: record.GPU, Detail: map[string]any{"name": "H200", "used_bytes": 123456789012.}},
	}
	type row struct {
		Steps, Kind, Text, Took string
	}
	var got []row
	for _, e := range r.eventRows() {
		got = append(got, row{e.Steps(), e.Kind, e.Text, milliseconds(e.Took)})
	}
	want := []row{
		{"4 – 9", "balance", "Placement kept, 2 decisions: the slowest stage is up to 2.35 % above the optimum.", "2"},
		{"20", "dynamic", "52 % of the prunable weights pruned, 1.13 M of 2.36 M left.", "26"},
		{"24", "balance", "Placement kept: no move pays.", "1"},
		{"29", "migrate", "2 layers moved, 4.76 MB: stages now hold 5, 2 layers. Makespan 206 → 159 ms, 194 predicted.", "4"},
		{"34", "migrate", "1 layer moved, 12 bytes. Makespan 200 ms before, 100 predicted; the model changed before it was measured again.", "4"},
		{"36", "migrate", "Layers moved, 1.5 kB.", "0"},
		{"39", "balance", "Placement kept: stage 1 needs 3 bytes.", "0"},
		{"44 – 49", "balance", "Placement kept, 2 decisions: the best move would save up to 2.34 % of a step, which is uncertain.", "0"},
		{"54", "balance", "Placement kept: the best move would save 1.23 % of a step, less than its price.", "0"},
		{"59", "balance", "Placement kept: no move pays.", "0"},
		{"64", "balance", "Placement kept; the order of work changed. Makespan 200 → 190 ms, 180 predicted.", "0"},
		{"40", "dynamic", "Froze layers 0 to 2.", "0"},
		{"41", "dynamic", "Exit: left over 0.123.", "0"},
		{"42", "dynamic", "Exit.", "0"},
		{"43", "gpu", "name H200, used bytes 123 G", "0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
