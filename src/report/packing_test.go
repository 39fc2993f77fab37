package report

import (
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

func TestPackedSentence(t *testing.T) {
	packed := record.Packing{RanksFirst: 16, RanksLast: 8, MeanRanks: 11.32, Throughput: 0.991}
	with := func(change func(*record.Packing)) record.Packing {
		p := packed
		change(&p)
		return p
	}
	for _, c := range []struct {
		packing record.Packing
		want    string
	}{
		{with(func(p *record.Packing) { p.NodesGivenBack, p.HoursGivenBack, p.HoursIdle = 4, 2.1, 0.01 }),
			"packed from 16 ranks to 8; on average 11.3 ranks; 4 nodes given back, 2.1 node-hours; 0.99x the dense model's throughput"},
		{with(func(p *record.Packing) { p.NodesIdle, p.HoursIdle, p.Throughput, p.Predicted = 1, 0.25, 0, 0.98 }),
			"packed from 16 ranks to 8; on average 11.3 ranks; 1 node idle, still allocated, 0.25 node-hours; 0.98x the dense model's throughput was predicted"},
		{with(func(p *record.Packing) {
			p.NodesGivenBack, p.HoursGivenBack, p.NodesIdle, p.HoursIdle, p.Failed = 2, 1, 2, 0.5, 1
		}),
			"packed from 16 ranks to 8; on average 11.3 ranks; 2 nodes given back, 1 node-hours; 2 nodes idle, still allocated, 0.5 node-hours; Slurm refused to take nodes back once; 0.99x the dense model's throughput"},
		{with(func(p *record.Packing) { p.Throughput = 0 }), "packed from 16 ranks to 8; on average 11.3 ranks"},
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
	expect.OK(t, Packings(&text, []Run{other}))
	if text.Len() > 0 {
		t.Errorf("%q of a run that was not to pack", text.String())
	}
}
