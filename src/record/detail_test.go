package record

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/expect"
)

// TestDetail: a detail that is written is read, as it is and from a file.
func TestDetail(t *testing.T) {
	midnight := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	want := Released{Mode: "slurm", NodesBefore: []string{"a", "b"}, Nodes: []string{"a"}, Ranks: []int{2, 3}, Goodbye: 1.5, Tries: 1, Time: midnight}
	d, err := Detail(want)
	expect.OK(t, err)
	text, err := json.Marshal(Event{Kind: Release, Detail: d})
	expect.OK(t, err)
	var read Event
	expect.OK(t, json.Unmarshal(text, &read))
	for _, e := range []Event{read, {Detail: d}, {Detail: map[string]any{
		"mode": "slurm", "nodes_before": []string{"a", "b"}, "nodes": []string{"a"}, "ranks": []int{2, 3}, "goodbye_seconds": 1.5, "tries": 1, "time": midnight,
	}}} {
		var got Released
		expect.OK(t, e.Read(&got))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	var got Released
	if err := (Event{Step: 7, Kind: Release, Detail: map[string]any{"tries": "many"}}).Read(&got); err == nil {
		t.Error("a detail of another form was read")
	}
}
