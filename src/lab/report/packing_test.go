package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

func TestPackedSentence(t *testing.T) {
	packed := verdict.Packing{RanksFirst: 16, RanksLast: 8, MeanRanks: 11.32, Throughput: 0.991}
	with := func(change func(*verdict.Packing)) verdict.Packing {
		p := packed
		change(&p)
		return p
	}
	for _, c := range []struct {
		packing verdict.Packing
		want    string
	}{
		{with(func(p *verdict.Packing) { p.NodesGivenBack, p.HoursGivenBack, p.HoursIdle = 4, 2.1, 0.01 }),
			"packed from 16 ranks to 8; on average 11.3 ranks; 4 nodes given back, 2.1 node-hours; 0.99x the dense model's throughput"},
		{with(func(p *verdict.Packing) { p.NodesIdle, p.HoursIdle, p.Throughput, p.Predicted = 1, 0.25, 0, 0.98 }),
			"packed from 16 ranks to 8; on average 11.3 ranks; 1 node idle, still allocated, 0.25 node-hours; predicted: 0.98x the dense model's throughput"},
		{with(func(p *verdict.Packing) {
			p.NodesGivenBack, p.HoursGivenBack, p.NodesIdle, p.HoursIdle, p.Failed = 2, 1, 2, 0.5, 1
		}),
			"packed from 16 ranks to 8; on average 11.3 ranks; 2 nodes given back, 1 node-hours; 2 nodes idle, still allocated, 0.5 node-hours; Slurm refused to take nodes back once; 0.99x the dense model's throughput"},
		{with(func(p *verdict.Packing) { p.Throughput = 0 }), "packed from 16 ranks to 8; on average 11.3 ranks"},
	} {
		if got := PackedSentence(c.packing); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestPackings: runs that were packed have a line, those that were to be a sentence, and
// others nothing.
func TestPackings(t *testing.T) {
	packed, idle, never, other := packedRun(t, true), packedRun(t, false), recorded(t, "partition", 1), recorded(t, "uniform", 1)
	idle.Config.Run.Name, never.Config.Run.Name, never.Config.Repack.Kind = "parked", "heavy", "sustain"
	var text strings.Builder
	expect.OK(t, Packings(&text, []Run{other, packed, idle, never}))
	expect.Golden(t, "testdata/packings.txt", text.String())
	for line := range strings.Lines(text.String()) {
		if len(line) > 101 && !strings.Contains(line, ": packed from") {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	text.Reset()
	expect.OK(t, Phases(&text, []Run{packed, idle}, false))
	expect.Golden(t, "testdata/packed-phases.txt", text.String())
	text.Reset()
	expect.OK(t, Packings(&text, []Run{other}))
	if text.Len() > 0 {
		t.Errorf("%q of a run that was not to pack", text.String())
	}
}

// TestPackedPage: the page of a run that was packed states the result of packing. It has a chart of
// ranks and one of throughput, with marks at packings and releases, and names the rank and node of
// each stage.
func TestPackedPage(t *testing.T) {
	r := packedRun(t, true)
	text := render(t, r)
	for _, want := range []string{
		"<p class=\"headline\">Ranks: <b>packed from 16 ranks to 8; on average 12 ranks; 2 nodes given back, 0.467 node-hours; 2 nodes idle",
		"<b>ranks</b> <small>that train", "<b>throughput of the dense model</b>, %",
		"Packed from 16 ranks to 12, on 6 of 8 nodes; predicted: 1.03x the dense model", "Measured: 1.03x the dense model", "2 nodes given back, 6 of 8 left; ranks 6-7,10-11 ended; took: checkpoint 1.25s, goodbye 500ms, scontrol 30ms.",
		"stage 3: layers 9 to 11; ranks 6-7 on n3, steps 0 to 11", "stage 3: layers 12 to 15; ranks 8-9 on n4, steps 12 to 23", "stage 3: layers 18 to 23; ranks 12-13 on n6, steps 24 to 35",
		`"places":["rank 0 on n0","rank 2 on n1","rank 8 on n4","rank 12 on n6"]`,
		`{"kind":"repack","step":11.5}`, `{"kind":"release","step":21}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	charts := r.packingCharts(r.packing())
	for i, want := range [][]record.Float{{16, 12, 8}, {8, 6, 4}, {8, 6, 6}} {
		y := charts[0].Curves[i].Y
		if got := []record.Float{y[0], y[23], y[24]}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", charts[0].Curves[i].Name, got, want)
		}
	}
	measured, predicted := charts[1].Curves[0].Y, charts[1].Curves[1].Y
	if measured[0] != 100 || math.Abs(float64(measured[35])-99.2) > 0.1 || finite(predicted[11]) || !finite(predicted[12]) {
		t.Errorf("throughput %v, predicted %v, want a prediction from step 12 on", measured, predicted)
	}
	r.Events = nil
	if text := render(t, r); strings.Contains(text, "packed onto fewer ranks</span>") {
		t.Error("the page of a run that was not packed speaks of packing")
	}
}
