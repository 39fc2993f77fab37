package report

import (
	"math"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestPieces: the layer with the most unequal work is shown, with the pieces that have copies,
// and what the fullest replica had with and without these.
func TestPieces(t *testing.T) {
	c, err := config.Load("", []string{
		"model.family=llama", "model.blocks=2", "dynamic.kind=moe", "moe.experts=4", "moe.top=1", "moe.block_rows=1", "moe.spare=1",
		"parallel.experts=spread", "parallel.replicas=2",
	})
	expect.OK(t, err)
	r := Run{Config: c}
	for step := range 4 {
		counts := []record.LayerCounts{
			{Layer: "block.0", Name: "experts", Values: []int64{8, 0, 0, 0, 2, 2, 2, 2}},
			{Layer: "block.1", Name: "experts", Values: []int64{8, 0, 0, 0, 6, 2, 0, 0}},
		}
		r.Metrics = append(r.Metrics, record.Metrics{Step: step, Cuts: []int{0, 4}, LayersPerStage: []int{4}, Counts: counts})
	}
	r.Events = []record.Event{{Step: 1, Kind: record.Place, Detail: map[string]any{"pieces": "0*2 1*2;0+1 0 1*2", "placed": map[string]any{"layers": 1., "now": 2., "then": 1., "bound": 1., "gain": 0.25}}}}
	p, err := r.pieces()
	expect.OK(t, err)
	if p == nil || p.Layer != "block.1" || p.Moved != 1 || p.Fullest != 1.25 || p.Even != 1.5 {
		t.Fatalf("%+v, want block.1, a mean of 1.25, 1.5 without copies", p)
	}
	for i, want := range [][]float64{{1.5, 1.5, 1, 1}, {1.5, 1.5, 1.5, 1.5}} { // means with block.0, whose replicas have equal work
		for step, y := range p.load.Curves[i].Y {
			if math.Abs(float64(y)-want[step]) > 1e-9 {
				t.Errorf("curve %d, step %d: %v, want %v", i, step, y, want[step])
			}
		}
	}
	if list := p.View.Hatched; len(list) != 1 || list[0] != (box{Step: 2, Width: 2, Height: 1}) {
		t.Errorf("hatched boxes: %+v, want the copy of the first piece", list)
	}
	if text := placeText(r.Events[0]); !strings.Contains(text, "even share 2.00") || !strings.Contains(text, "25.0 % shorter") {
		t.Error(text)
	}
	for text, want := range map[string]string{
		"0*2 1*2;0+x":     `pieces of block 1: "0+x": "x", want the number of a replica`,
		"0*2 1*2;0*2 1":   "experts of block 1: 3 pieces, want 4",
		"0*2 1*2":         "experts of 1 blocks, want 2",
		"0*2 1*2;0*2 1 2": "experts of block 1: piece 3: replica 2, want 0 to 1",
	} {
		r.Events[0].Detail["pieces"] = text
		if _, err := r.pieces(); err == nil || err.Error() != "events.jsonl: place event after step 1: "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
