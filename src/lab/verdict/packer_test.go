package verdict

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// midnight is when the runs of these tests begin.
var midnight = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

// packedSteps returns the steps of a run. ranks is by step the number of ranks that train, two on
// a node. A step takes ten minutes, and by the run's clock the seconds of a table by ranks.
func packedSteps(first int, ranks ...int) (list []record.Metrics) {
	seconds := map[int]record.Float{16: 4, 12: 5, 8: 5}
	for i, n := range ranks {
		end := time.Duration(first+i+1) * 10 * time.Minute
		list = append(list, record.Metrics{
			Step: first + i, Clock: "virtual", StepSeconds: seconds[n], Ranks: n, Nodes: n / 2, BatchSize: 8,
			Time: midnight.Add(end), WallSeconds: record.Float(end.Seconds()),
		})
	}
	return list
}

// eventsOf reads a file of events.
func eventsOf(t *testing.T, lines ...string) (list []record.Event) {
	t.Helper()
	for _, line := range lines {
		var e record.Event
		expect.OK(t, json.Unmarshal([]byte(line), &e))
		list = append(list, e)
	}
	return list
}

const (
	prunedBefore2 = `{"step":2,"kind":"dynamic","clock":"virtual","bytes":0,"seconds":0,"detail":{"what":"prune"}}`
	packedTo12    = `{"step":3,"kind":"repack","clock":"virtual","bytes":9,"seconds":2,"detail":{"kind":"sustain","stages_before":8,"stages":6,"ranks_before":16,"ranks":12,"nodes_before":8,"nodes":6,"microbatches":8,"exact":true,"throughput":0.9,"deciding_seconds":0.5,"moving_seconds":1,"resizing_seconds":0.5}}`
	packedTo8     = `{"step":5,"kind":"repack","clock":"virtual","bytes":9,"seconds":2,"detail":{"kind":"sustain","stages_before":6,"stages":4,"ranks_before":12,"ranks":8,"nodes_before":6,"nodes":4,"throughput":0.7}}`
	releasedAt50  = `{"step":4,"kind":"release","clock":"virtual","bytes":0,"seconds":9,"detail":{"mode":"slurm","nodes_before":["a","b","c","d","e","f","g","h"],"nodes":["a","b","c","d","e","f"],"ranks":[12,13,14,15],"checkpoint_seconds":6,"goodbye_seconds":1,"scontrol_seconds":2,"tries":3,"time":"2026-11-23T00:50:00Z"}}`
	refused       = `{"step":6,"kind":"release","clock":"virtual","bytes":0,"seconds":9,"detail":{"mode":"slurm","nodes_before":["a","b","c","d","e","f"],"nodes":["a","b","c","d","e","f"],"tries":30,"refused":"Job has no slurmdbd","time":"2026-11-23T01:15:00Z"}}`
)

// pack returns what packing came to in a run of some records.
func pack(steps []record.Metrics, events []record.Event) *Packing {
	var p Packer
	record.Replay(steps, events, p.Step, p.Event)
	return p.Packing()
}

// TestPacking: a run packs from 16 ranks on 8 nodes to 12 after step 3. Slurm takes two nodes back
// after 50 minutes of 80. After step 5 the run packs to 8, and Slurm refuses. So two nodes are
// without work for 10 minutes, and then two others for 20.
func TestPacking(t *testing.T) {
	steps := packedSteps(0, 16, 16, 16, 16, 12, 12, 8, 8)
	got := pack(steps, eventsOf(t, prunedBefore2, packedTo12, releasedAt50, packedTo8, refused))
	want := &Packing{
		Clock: "virtual", RanksFirst: 16, RanksLast: 8, MeanRanks: record.Float((16*16. + 10*12 + 10*8) / 36), FreeRankSeconds: 10*4 + 10*8,
		NodesFirst: 8, NodesLast: 4, NodesGivenBack: 2, HoursGivenBack: 1, NodesIdle: 2, HoursIdle: 2/6. + 4/6.,
		Packings: 2, Releases: 1, Failed: 1, Throughput: 0.8, ThroughputLeast: 0.8, Predicted: 0.7,
		Segments: []Segment{
			{Step: 0, Steps: 4, Ranks: 16, Nodes: 8, Seconds: 4, Throughput: 1},
			{Step: 4, Steps: 2, Ranks: 12, Nodes: 6, Seconds: 5, Throughput: 0.8, Predicted: 0.9},
			{Step: 6, Steps: 2, Ranks: 8, Nodes: 4, Seconds: 5, Throughput: 0.8, Predicted: 0.7},
		},
	}
	near := cmpopts.EquateApprox(1e-12, 0)
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Error(diff)
	}
	if p := pack(steps, eventsOf(t, prunedBefore2)); p != nil {
		t.Errorf("%+v of a run that was not packed", p)
	}
	for i := range steps {
		steps[i].Ranks = 0
	}
	if p := pack(steps, eventsOf(t, packedTo12)); p != nil {
		t.Errorf("%+v of a run whose steps tell no ranks", p)
	}
}

// TestPackingToldLate: an event that is reported when its effect has been measured says what
// was predicted of the steps before it too.
func TestPackingToldLate(t *testing.T) {
	var p Packer
	for _, m := range packedSteps(0, 16, 16, 16, 16, 12, 12) {
		p.Step(m)
	}
	p.Event(eventsOf(t, packedTo12)[0])
	if got := p.Packing(); got == nil || got.Predicted != 0.9 || got.Segments[0].Predicted != 0 {
		t.Errorf("%+v, want 0.9 of the second segment", got)
	}
}

// TestPackingOverResumes: returned nodes count until the end of their job, and the next job starts
// with its own number of nodes. With elastic.release = restart it is the same job. Steps 4 and 5
// are run again, and the release after them stays in the records.
func TestPackingOverResumes(t *testing.T) {
	resumed := `{"step":4,"kind":"resume","clock":"virtual","bytes":0,"seconds":0,"detail":{"restart":1}}`
	steps := append(packedSteps(0, 16, 16, 16, 16), packedSteps(10, 12, 12, 12)...)
	for i := range steps {
		steps[i].Step = i
	}
	restart := `{"step":3,"kind":"release","clock":"virtual","bytes":0,"seconds":9,"detail":{"mode":"restart","nodes_before":["a","b","c","d","e","f","g","h"],"nodes":["a","b","c","d","e","f"],"time":"2026-11-23T00:40:00Z"}}`
	for _, c := range []struct {
		name, release string
		hours         record.Float
		nodes, idle   int
	}{
		{"another job", releasedAt50, 0, 2, 0},
		{"the same job", restart, 2 * (130 - 40) / 60., 2, 0},
		{"refused", refused, 0, 0, 0},
	} {
		p := pack(steps, eventsOf(t, packedTo12, c.release, resumed))
		if p == nil || math.Abs(float64(p.HoursGivenBack-c.hours)) > 1e-9 || p.NodesGivenBack != c.nodes || p.NodesIdle != c.idle || p.RanksLast != 12 {
			t.Errorf("%s: %+v, want %v hours of %d nodes", c.name, p, c.hours, c.nodes)
		}
	}
}

// TestPackingGoesOn: a resumed run sums up as if it had not ended, except for the nodes of its
// first job. A packing that runs again is removed; nodes that were given back stay.
func TestPackingGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := record.Open(dir, "", record.Provenance{})
	expect.OK(t, err)
	before := packedSteps(0, 16, 16, 16, 16, 12, 12, 8, 8)
	for _, m := range before {
		expect.OK(t, r.Step(m))
	}
	events := eventsOf(t, prunedBefore2, packedTo12, packedTo8, refused, releasedAt50)
	for _, e := range events {
		expect.OK(t, r.Event(e))
	}
	expect.OK(t, r.Close())
	var tally Tally
	r, _, err = record.Resume(dir, "", record.Provenance{}, record.From{Step: 5, Kept: &tally})
	expect.OK(t, err)
	after := packedSteps(5, 12, 12)
	for _, m := range after {
		tally.Step(m)
	}
	expect.OK(t, r.Close())
	events = append(slices.Clone(events[:2]), events[3], events[4], record.Event{Step: 5, Kind: record.Resumed})
	want := pack(append(before[:5], after...), events)
	if diff := cmp.Diff(want, tally.Packing()); diff != "" || want.NodesGivenBack != 2 || want.Failed != 1 || want.Packings != 1 {
		t.Error(want, diff)
	}
	text, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
	expect.OK(t, err)
	if n := bytes.Count(text, []byte("\n")); n != len(events) {
		t.Errorf("%d events, want %d", n, len(events))
	}
}
