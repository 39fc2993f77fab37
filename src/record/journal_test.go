package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// told is an observer that records all calls in order.
type told struct {
	order   []string
	metrics []Metrics
	events  []Event
	phases  Series
	lines   []string
}

func (o *told) Say(line string) { o.lines = append(o.lines, line) }

func (o *told) Step(m Metrics) error {
	o.order, o.metrics = append(o.order, fmt.Sprintf("step %d", m.Step)), append(o.metrics, m)
	return nil
}

func (o *told) Event(e Event) error {
	o.order, o.events = append(o.order, fmt.Sprintf("%s %d", e.Kind, e.Step)), append(o.events, e)
	return nil
}

func (o *told) Costs(p Phase) error {
	o.order, o.phases = append(o.order, fmt.Sprintf("costs %d+%d", p.Step, p.Steps)), append(o.phases, p)
	return nil
}

func (o *told) Trace(s trace.Step) error {
	o.order = append(o.order, fmt.Sprintf("trace %d of %d stages", s.Step, len(s.Stages)))
	return nil
}

// recorder is a journal, with steps that a simulation stands for.
type recorder struct {
	t       *testing.T
	told    told
	journal *Journal
	problem *search.Problem
	costs   cost.Table
	step    int
	joules  float64 // of the next step

	validation *Validation // of the next step
}

// hosts are those of the ranks of tests: two on each.
var hosts = []string{"node1", "node1", "node2", "node2", "node3", "node3", "node4", "node4"}

func newRecorder(t *testing.T, kind schedule.Kind, layers, stages int) *recorder {
	c := config.Default()
	c.Model.Blocks, c.Parallel.Stages, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = layers-2, stages, 4, 1
	c.Schedule.Kind = string(kind)
	r := &recorder{t: t, joules: -1, costs: cost.Table{Clock: "virtual", Dispatch: 1e-4}}
	for l := range layers {
		r.costs.Layers = append(r.costs.Layers, cost.Layer{Name: fmt.Sprintf("layer%d", l), Forward: 1e-3, BackwardInput: 2e-3, BackwardWeight: 1e-3, Output: 8})
	}
	var err error
	if r.problem, err = search.New(c, sim.Network{}, nil); err != nil {
		t.Fatal(err)
	}
	r.journal = NewJournal(&r.told, c, "virtual", hosts)
	return r
}

// layout returns the layout of some cuts, on as many stages as they are of.
func (r *recorder) layout(cuts ...int) layout.Layout {
	r.t.Helper()
	chunks := r.problem.Config.Schedule.Virtual()
	p, err := r.problem.Resize((len(cuts)-1)/chunks, r.problem.Microbatches)
	if err != nil {
		r.t.Fatal(err)
	}
	return p.Step(r.costs, layout.Layout{}).Layout(cuts)
}

// tell passes a journal a step in one layout that is followed by another layout.
func (r *recorder) tell(ran, next layout.Layout, why plan.Reason, seconds float64) {
	r.t.Helper()
	p, err := r.problem.Match(ran)
	if err != nil {
		r.t.Fatal(err)
	}
	costs := r.costs
	costs.Layers = slices.Clone(costs.Layers)
	for l := range costs.Layers {
		costs.Layers[l].Forward *= seconds
	}
	step, err := p.Simulate(cost.Phase{Table: costs}, ran, r.step)
	if err != nil {
		r.t.Fatal(err)
	}
	d := Done{
		Step: r.step, Model: search.Shape(p.Config), Analysis: step.Analysis,
		Measured: Measured{
			Measurement: cost.Measurement{Table: costs}, Summary: step.Step.Summary, Instructions: step.Step.Spans, Memory: make([]trace.Memory, ran.Stages()), Joules: r.joules,
		},
		Ran: ran, Next: next, Why: why, Moved: layout.Moved{Layers: 2, Bytes: 9}, Moving: 1, Validation: r.validation,
	}
	if err := r.journal.Step(d); err != nil {
		r.t.Fatal(err)
	}
	r.step++
}

// continuing is an observer of a run that goes on.
type continuing struct {
	*told
	last Metrics
}

func (c continuing) Last() *Metrics { return &c.last }

// TestJournalOfARunThatGoesOn: after a resume real time counts on from the last step, energy by
// the tokens since. The first phase is marked as the first since a resume.
func TestJournalOfARunThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, schedule.Kind1F1B, 4, 2)
		r.journal = NewJournal(continuing{&r.told, Metrics{Step: 9, WallSeconds: 100}}, r.journal.config, "virtual", hosts)
		l := r.layout(0, 2, 4)
		r.step = 10
		for range 2 {
			time.Sleep(time.Second)
			r.joules = float64(2 * 4 * 64 * (r.step - 9)) // two a token: 4 microbatches of 64 tokens a step
			r.tell(l, l, plan.Reason{}, 1)
		}
		if m := r.told.metrics; m[0].WallSeconds != 101 || m[1].WallSeconds != 102 || m[0].JoulesPerToken != 2 || m[1].JoulesPerToken != 2 {
			t.Errorf("wall seconds %v and %v, joules per token %v and %v", m[0].WallSeconds, m[1].WallSeconds, m[0].JoulesPerToken, m[1].JoulesPerToken)
		}
		if p := r.end(); len(p) != 1 || p[0].Step != 10 || !p[0].Run.Resumed {
			t.Errorf("%+v", p)
		}
	})
}

// end ends the run and returns its phases as they are read from a file.
func (r *recorder) end() Series {
	r.t.Helper()
	if err := r.journal.End(); err != nil {
		r.t.Fatal(err)
	}
	var file bytes.Buffer
	for _, p := range r.told.phases {
		if err := json.NewEncoder(&file).Encode(p); err != nil {
			r.t.Fatal(err)
		}
	}
	got, err := ReadSeries(CostsFile, &file, len(r.costs.Layers))
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// TestJournal: events, timelines, costs and metrics are written in this order. The effect of a
// decision is written with the second step after it, or before the model changes. Costs have the
// dispatch overhead.
func TestJournal(t *testing.T) {
	r := newRecorder(t, schedule.Kind1F1B, 8, 2)
	even, uneven := r.layout(0, 4, 8), r.layout(0, 3, 8)
	r.tell(even, even, plan.Reason{}, 1)
	r.tell(even, uneven, plan.Reason{Decided: true, Predicted: 5}, 2)
	r.tell(uneven, uneven, plan.Reason{}, 3)
	r.tell(uneven, uneven, plan.Reason{Decided: true, Predicted: 6}, 4)
	expect.OK(t, r.journal.Changed(4, Change{Seconds: 1}))
	r.tell(uneven, uneven, plan.Reason{}, 5)
	expect.OK(t, r.journal.Changed(5, Change{Kind: "prune", Detail: map[string]float64{"sparsity": 0.5}, Seconds: 1}))
	r.tell(uneven, uneven, plan.Reason{Full: &balance.MemoryError{Layer: -1}}, 6)
	series := r.end()
	want := []string{
		"step 0", "migrate 1", "trace 1 of 2 stages", "step 1", "costs 0+2", "step 2", "balance 1", "trace 3 of 2 stages", "step 3",
		"step 4", "balance 3", "dynamic 5", "balance 5", "costs 2+3", "step 5", "costs 5+1",
	}
	if diff := cmp.Diff(want, r.told.order); diff != "" {
		t.Error(diff)
	}
	first, second := r.told.events[1], r.told.events[2]
	if first.Before != r.told.metrics[1].Makespan || first.Predicted != 5 || first.After != r.told.metrics[3].Makespan || first.Bytes != 9 {
		t.Errorf("%+v, want the makespans of steps 1 and 3", first)
	}
	if second.Step != 3 || second.After != r.told.metrics[4].Makespan {
		t.Errorf("%+v, want the makespan of step 4, the only one before the model changed", second)
	}
	if kept, ok := r.told.events[4].Detail["kept"].(string); !ok || !strings.HasPrefix(kept, "memory") {
		t.Errorf("%+v, want why layers stay", r.told.events[4])
	}
	for i, p := range series {
		if math.Abs(p.Dispatch-r.costs.Dispatch) > 1e-9 {
			t.Errorf("phase %d: dispatch overhead %v, want %v", i, p.Dispatch, r.costs.Dispatch)
		}
	}
	if series[2].Change != "prune" {
		t.Errorf("phase 2 follows on %q, want prune", series[2].Change)
	}
}

// TestJournalSays: the log has each change of the model, and each move with its gain. Of decisions
// that change nothing it has the first with each answer since the model changed.
func TestJournalSays(t *testing.T) {
	r := newRecorder(t, schedule.Kind1F1B, 8, 2)
	even, uneven := r.layout(0, 4, 8), r.layout(0, 3, 8)
	keep := plan.Reason{Decided: true, Kept: plan.KeptBest, Predicted: 0.1, Bottleneck: 0.0625, Optimum: 0.05}
	unsure, dear := keep, keep
	unsure.Kept, unsure.Gain = plan.KeptUncertain, plan.Gain{Expected: 0.031, Least: -0.02}
	dear.Kept, dear.Gain = plan.KeptPrice, plan.Gain{Expected: 0.02, Least: 0.02}
	move := plan.Reason{Decided: true, Predicted: 0.05, Bottleneck: 0.05, Optimum: 0.05, Gain: plan.Gain{Expected: 0.5, Least: 0.45}}
	r.tell(even, even, keep, 2)
	r.tell(even, even, keep, 2)
	r.tell(even, uneven, move, 2)
	r.tell(uneven, uneven, keep, 1)
	r.tell(uneven, even, plan.Reason{}, 1)
	expect.OK(t, r.journal.Changed(5, Change{Kind: "prune", Detail: map[string]float64{"kept": 1, "sparsity": 0.5}, Text: "50 % of the prunable weights pruned", Seconds: 83}))
	r.tell(even, even, keep, 1)
	r.tell(even, even, unsure, 1)
	r.tell(even, even, dear, 1)
	expect.OK(t, r.journal.Changed(8, Change{Kind: "freeze", Detail: map[string]float64{"layers": 3, "of_all": 8}, Text: "froze layers 0 to 2 of 8", Seconds: 5e-6}))
	r.tell(even, even, plan.Reason{Full: &balance.MemoryError{Layer: -1}}, 1)
	order, err := schedule.New(schedule.KindGPipe, 2, 1, 4)
	expect.OK(t, err)
	gpipe := even.With(even.Cuts, order)
	r.tell(even, gpipe, plan.Reason{Decided: true, Predicted: 0.2}, 1)
	undone := keep
	undone.Kept = plan.KeptUndone
	r.tell(even, even, undone, 1)
	r.tell(uneven, even, plan.Reason{Decided: true, Undone: true, Predicted: 0.1}, 2)
	const kept, gap = "layers stay: ", "; slowest stage 25.0 % above the optimum"
	want := []string{
		"step 0: " + kept + "no move pays" + gap,
		"step 2: moving layers: step 101ms, predicted: 50ms, 2.01x faster (at least 1.83x); slowest stage 0.0 % above the optimum",
		"step 2: moved 2 layers, 9 bytes, in 1s; layers per stage 3 5",
		"step 2: measured after the move: step 92.7ms, 1.09x faster than 101ms before (predicted: 50ms)",
		"step 3: " + kept + "no move pays" + gap,
		"step 4: moved 2 layers, 9 bytes, in 1s; layers per stage 4 4",
		"step 5: 50 % of the prunable weights pruned; took 1m23s",
		"step 5: " + kept + "no move pays" + gap,
		"step 6: " + kept + "the best move would save 3.1 % of a step, give or take 5.1 %" + gap,
		"step 7: " + kept + "the best move would save 2.0 % of a step, less than its price" + gap,
		"step 8: froze layers 0 to 2 of 8",
		"step 8: layers stay: memory: stage 0 lacks 0 bytes for its layers",
		"step 9: schedule gpipe replaces 1f1b: step 80.7ms, predicted: 200ms, 2.48x slower",
		"step 10: " + kept + "the last move made steps slower and was undone" + gap,
		"step 11: undoing the last move: steps became slower, and layer costs do not explain it",
		"step 11: moved 2 layers, 9 bytes, in 1s; layers per stage 4 4",
	}
	if diff := cmp.Diff(want, r.told.lines); diff != "" {
		t.Error(diff)
	}
	for i, m := range r.told.metrics {
		if want := map[bool]Float{false: 0, true: 0.5}[i >= 5]; m.Sparsity != want || m.BatchSize != 4 {
			t.Errorf("step %d: sparsity %v, %d sequences, want %v and 4", i, m.Sparsity, m.BatchSize, want)
		}
	}
}

// TestJournalTime: a step's time is when it was reported; wall seconds count from the
// journal's beginning, whatever the run's clock.
func TestJournalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, schedule.Kind1F1B, 8, 2)
		even := r.layout(0, 4, 8)
		for i := range 2 {
			time.Sleep(1500 * time.Millisecond)
			r.tell(even, even, plan.Reason{}, 1)
			if m := r.told.metrics[i]; !m.Time.Equal(time.Now()) || m.Time.Location() != time.UTC || m.WallSeconds != 1.5*Float(i+1) {
				t.Errorf("step %d at %v: time %v, %v wall seconds", i, time.Now(), m.Time, m.WallSeconds)
			}
		}
	})
}

// TestJournalOfFewerStages: metrics, timelines and costs are those of the layout
// of each step, on however many stages it is, and can be read.
func TestJournalOfFewerStages(t *testing.T) {
	for _, c := range []struct {
		kind   schedule.Kind
		chunks int
	}{{schedule.Kind1F1B, 1}, {schedule.KindAuto, 1}, {schedule.KindInterleaved, 2}, {schedule.KindZBV, 2}} {
		r := newRecorder(t, c.kind, 12, 4)
		spread := func(stages int) layout.Layout {
			cuts := make(partition.Partition, stages*c.chunks+1)
			for i := range cuts {
				cuts[i] = 12 * i / (stages * c.chunks)
			}
			return r.layout(cuts...)
		}
		now := spread(4)
		for _, stages := range []int{4, 2, 2, 1, 1} {
			next := spread(stages)
			if stages == 2 {
				next.Ranks = []int{0, 2} // of two hosts
			}
			r.tell(now, next, plan.Reason{}, 1)
			now = next
		}
		series := r.end()
		for i, want := range []int{4, 4, 2, 2, 1} {
			m := r.told.metrics[i]
			if len(m.LayersPerStage) != want || len(m.BytesPerStage) != want || len(m.Cuts) != want*c.chunks+1 || !(m.Makespan > 0) || math.Abs(float64(m.Predicted/m.Makespan)-1) > 1e-9 {
				t.Errorf("%s, step %d: %+v, want %d stages", c.kind, i, m, want)
			}
			if nodes := min(want, 2); m.Ranks != want || m.Nodes != nodes {
				t.Errorf("%s, step %d: %d ranks on %d nodes, want %d on %d", c.kind, i, m.Ranks, m.Nodes, want, nodes)
			}
		}
		if len(series) != 3 || series[1].Run.Layout.Stages() != 2 || series[1].Steps != 2 || len(series[1].Run.Scale) != 2*c.chunks {
			t.Errorf("%s: %+v, want three phases, the second of 2 steps on 2 stages", c.kind, series)
		}
	}
}

// TestJournalValidation: a validation loss is in the metrics of its step alone, with its
// perplexity, and a line in Megatron-LM's fields follows the step.
func TestJournalValidation(t *testing.T) {
	r := newRecorder(t, schedule.Kind1F1B, 8, 2)
	even := r.layout(0, 4, 8)
	r.tell(even, even, plan.Reason{}, 1)
	r.validation = &Validation{Loss: 2, Last: 1, Seconds: 0.25}
	r.tell(even, even, plan.Reason{}, 1)
	r.validation = &Validation{Loss: math.Inf(1), Last: math.Inf(1), Seconds: 0.25}
	r.tell(even, even, plan.Reason{}, 1)
	want := []string{
		" validation loss at iteration 2 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 | lm loss at the last layer: 1.000000E+00 | time: 250ms | clock: virtual |",
		" validation loss at iteration 3 | lm loss value: +INF | lm loss PPL: +INF | time: 250ms | clock: virtual |",
	}
	if got := r.told.lines; !slices.EqualFunc(got, want, strings.EqualFold) {
		t.Errorf("lines %q, want %q", got, want)
	}
	for i, keys := range []string{"", `"validation_loss":2,"validation_last_loss":1,"validation_perplexity":7.38905609893065,"validation_seconds":0.25`, `"validation_loss":null,"validation_perplexity":null,"validation_seconds":0.25`} {
		text, err := json.Marshal(r.told.metrics[i])
		expect.OK(t, err)
		if keys == "" && bytes.Contains(text, []byte("validation")) || !bytes.Contains(text, []byte(keys)) {
			t.Errorf("step %d: %s, want %s", i, text, keys)
		}
	}
}

// TestJournalTellsNothing: ranks but the first have no journal.
func TestJournalTellsNothing(t *testing.T) {
	var none *Journal
	if err := errors.Join(none.Changed(1, Change{Kind: "prune", Seconds: 1}), none.Step(Done{}), none.End()); err != nil {
		t.Error(err)
	}
}

// lost is an observer that can record no event.
type lost struct{ told }

var errLost = errors.New("directory lost")

func (o *lost) Event(e Event) error {
	_ = o.told.Event(e)
	return errLost
}

// TestJournalKeepsTheFirstError: after an error of the observer, every call returns that error, and the
// observer receives nothing more.
func TestJournalKeepsTheFirstError(t *testing.T) {
	r := newRecorder(t, schedule.Kind1F1B, 4, 2)
	var o lost
	r.journal = NewJournal(&o, r.journal.config, "virtual", hosts)
	for _, err := range []error{
		r.journal.Changed(0, Change{Kind: "prune"}), r.journal.Changed(1, Change{Kind: "prune"}), r.journal.Saved(1, Save{}), r.journal.End(),
	} {
		if !errors.Is(err, errLost) {
			t.Errorf("error %v, want %v", err, errLost)
		}
	}
	if got := strings.Join(o.order, ", "); got != "dynamic 0" {
		t.Errorf("the observer received %s, want the first event alone", got)
	}
}

// TestLayerCounts: counts are sorted by name, then in chain order.
func TestLayerCounts(t *testing.T) {
	layers := []cost.Layer{{Name: "embedding"}, {Name: "exit.0"}, {Name: "exit.1"}}
	got := layerCounts([]cost.CountSum{
		{Name: "exit", Layer: 1, Values: []int64{16, 5}}, {Name: "left", Layer: 1, Values: []int64{1}}, {Name: "exit", Layer: 2, Values: []int64{6, 1}},
	}, layers)
	want := []LayerCounts{{"exit.0", "exit", []int64{16, 5}}, {"exit.1", "exit", []int64{6, 1}}, {"exit.0", "left", []int64{1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list := layerCounts(nil, layers); list != nil {
		t.Errorf("%v of nothing", list)
	}
}
