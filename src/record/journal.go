package record

import (
	"fmt"
	"math"
	"time"

	"dynmo/src/config"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/trace"
)

// Simulated is the clock of records that a simulated run writes.
const Simulated = "sim"

// Observer receives what happens in a run, as it happens.
type Observer interface {
	Step(Metrics) error
	Event(Event) error
	// Costs is called with a phase once the phase has ended. Trace is called with the spans of all
	// stages of the first replica in a step.
	Costs(Phase) error
	Trace(trace.Step) error
	// Say receives a line for users: a change of the model, a decision, or a move. If a decision
	// repeats the previous answer there is no line.
	Say(line string)
}

// continuer is an observer of a run that resumes. Last returns the metrics of the last step before
// the first one that is run, nil if there are none.
type continuer interface {
	Observer
	Last() *Metrics
}

// Journal turns the data of rank 0's loop into the calls of an Observer: metrics, events, phases of
// costs, and timelines of some steps. A nil Journal, as on the other ranks, does nothing.
type Journal struct {
	observe Observer
	err     error // the first of the observer: it receives nothing after that
	config  config.Config
	clock   string
	hosts   []string // by rank of the launched world
	between *Between // see Course

	log     phaseLog
	pending *Event // the last decision, until its effect is measured; nil for none
	same    int    // steps since the layout changed
	traced  int    // timelines so far
	slow    stragglerLog

	began    time.Time
	first    int          // first step, -1 until there is one
	sparsity float64      // of the model, from its last change
	answered answer       // answer of the last decision
	moved    bool         // whether the pending decision moved layers
	unpacked plan.Packing // the last reported attempt to pack that packed nothing
}

// NewJournal returns the journal of a run. hosts is by rank of the launched world.
func NewJournal(o Observer, c config.Config, clock string, hosts []string) *Journal {
	j := &Journal{observe: o, config: c, clock: clock, hosts: hosts, began: time.Now(), first: -1}
	if o, ok := o.(continuer); ok && o.Last() != nil {
		j.log.again = true
		j.began = j.began.Add(-time.Duration(float64(o.Last().WallSeconds) * float64(time.Second)))
	}
	return j
}

// SetNetwork replaces the network of the settings by that of c: links, random delays and their seed.
func (j *Journal) SetNetwork(c Course) {
	to := &j.config
	to.Comm.LatencySeconds, to.Comm.BandwidthBytes, to.Comm.DelayMost, to.Run.Seed = c.Latency, c.Bandwidth, c.DelayMost, c.Seed
	j.between = c.Between
}

// Change is a change of the model before a step.
type Change struct {
	Kind    string             // "": the model did not change
	Detail  map[string]float64 // figures of the kind
	Text    string             // for people
	Seconds float64            // that the change took
}

// shortest is the least time of a change that the log tells, in seconds: less is nothing beside a step.
const shortest = 1e-3

// Changed records a change of the model before a step.
func (j *Journal) Changed(step int, change Change) error {
	if j == nil || change.Kind == "" {
		return nil
	}
	j.flush() // the effect of the last decision can no longer be measured
	j.log.change = change.Kind
	j.answered, j.unpacked = answerNone, plan.Packing{}
	if s, ok := change.Detail[sparsityKey]; ok {
		j.sparsity = s
	}
	detail := map[string]any{"what": change.Kind}
	for k, v := range change.Detail {
		detail[k] = v
	}
	took := ""
	if change.Seconds >= shortest {
		took = "; took " + Duration(change.Seconds)
	}
	j.observe.Say(fmt.Sprintf("step %d: %s%s", step, change.Text, took))
	j.event(Event{Step: step, Kind: Dynamic, Seconds: Float(change.Seconds), Detail: detail})
	return j.err
}

// Step records a step: its decision, events, metrics, costs and timeline.
func (j *Journal) Step(d Done) error {
	if j == nil {
		return nil
	}
	makespan := d.Measured.Summary.Makespan()
	for range min(2, max(1, d.Steps)) {
		j.settle(makespan)
	}
	j.decision(d, makespan)
	j.stragglers(d)
	j.timeline(d)
	m, run := j.metrics(d)
	j.log.model = d.Model
	if done, ended := j.log.add(d.Step, max(1, d.Steps), d.Measured.Measurement, d.Measured.Known, run); ended {
		j.tell(func() error { return j.observe.Costs(done) })
	}
	j.tell(func() error { return j.observe.Step(m) })
	if j.err == nil && d.Validation != nil {
		j.observe.Say(validationLine(d.Step, *d.Validation, j.clock))
	}
	return j.err
}

// End records the pending decision and the last phase of costs.
func (j *Journal) End() error {
	if j == nil {
		return nil
	}
	j.flush()
	if last, ok := j.log.take(); ok {
		j.tell(func() error { return j.observe.Costs(last) })
	}
	return j.err
}

// tell calls the observer, unless it has had an error.
func (j *Journal) tell(call func() error) {
	if j.err == nil {
		j.err = call()
	}
}

// event passes an event on, with the run's clock.
func (j *Journal) event(e Event) {
	e.Clock = j.clock
	j.tell(func() error { return j.observe.Event(e) })
}

// detailed passes an event on, with a struct as its detail.
func (j *Journal) detailed(e Event, of any) {
	j.tell(func() (err error) { e.Detail, err = Detail(of); return err })
	j.event(e)
}

// settle completes the event of the last decision with the makespan of the second step after it,
// because the first step touches new memory. It then records the event. flush records the event
// earlier, with the makespan of the first step.
func (j *Journal) settle(makespan float64) {
	if j.pending == nil {
		return
	}
	first := j.pending.After == 0
	if j.pending.After = Float(makespan); !first {
		j.flush()
	}
}

// flush records the event of the last decision with the data that is known so far.
func (j *Journal) flush() {
	e := j.pending
	if e == nil {
		return
	}
	j.pending = nil
	if j.moved {
		j.observe.Say(effectLine(*e))
	}
	j.event(*e)
}

// decision records a decision and the moves after it. The decision is pending until its effect is
// measured.
func (j *Journal) decision(d Done, makespan float64) {
	if d.Why.Decided {
		j.flush()
	}
	if p := d.Why.Pack; p != nil && p.Kept == "" {
		j.packed(d, makespan)
		return
	}
	j.notPacked(d)
	j.say(d, makespan)
	if d.Why.Full != nil {
		j.event(d.event(Event{Step: d.Step, Kind: Balance, Detail: d.Why.Detail(d.Next)}))
		return
	}
	if d.Moved.Refused != "" {
		j.event(d.event(Event{Step: d.Step, Kind: Migrate, Seconds: Float(d.Moving), Detail: map[string]any{refusedKey: d.Moved.Refused}}))
	}
	if !d.Next.Pieces.Equal(d.Ran.Pieces) && d.Why.Placed != nil {
		detail := map[string]any{"placed": d.Why.Placed, "pieces": d.Next.Pieces.String()}
		j.event(d.event(Event{Step: d.Step, Kind: Place, Bytes: d.Why.Placed.Moved, Detail: detail}))
	}
	if !d.Next.Cuts.Equal(d.Ran.Cuts) {
		detail := map[string]any{"layers": d.Moved.Layers, "cuts": []int(d.Next.Cuts)}
		if d.Moved.Behind > 0 {
			detail["bytes_behind"] = d.Moved.Behind
		}
		j.event(d.event(Event{Step: d.Step, Kind: Migrate, Bytes: d.Moved.Bytes, Seconds: Float(d.Moving), Detail: detail}))
	}
	if !d.Why.Decided {
		return
	}
	j.moved = !d.Next.Cuts.Equal(d.Ran.Cuts)
	pending := d.event(Event{
		Step: d.Step, Kind: Balance, Detail: d.Why.Detail(d.Next), Bytes: d.Moved.Bytes,
		Before: Float(makespan), Predicted: Float(d.Why.Predicted), Seconds: Float(d.Deciding),
	})
	j.pending = &pending
}

// say prints a line for a decision whose answer is new or changes something. It also prints a line
// for a move of layers.
func (j *Journal) say(d Done, makespan float64) {
	if d.Moved.Refused != "" {
		j.observe.Say(fmt.Sprintf("warning: step %d: layers stay: no memory for the move: %s", d.Step, d.Moved.Refused))
		j.answered = answer("stay: " + d.Why.Kept)
		return
	}
	if d.Why.Decided || d.Why.Full != nil {
		a, line := decisionLine(d, makespan)
		if a != j.answered || a == answerMove || a == answerReorder {
			j.observe.Say(line)
		}
		j.answered = a
	}
	if d.Why.Placed != nil {
		j.observe.Say(placeLine(d))
	}
	if !d.Next.Cuts.Equal(d.Ran.Cuts) {
		j.observe.Say(moveLine(d.Step, d.Moved, d.Moving, d.Next.LayersPerStage()))
	}
}

// timeline records timelines, up to the number in the settings. It takes the second step of every
// layout (the first touches new memory; of a simulated run it takes the first), and the last step
// before the layout changes.
func (j *Journal) timeline(d Done) {
	before, first := j.same, 2
	if j.clock == Simulated {
		first = 1
	}
	j.same += max(1, d.Steps)
	changed := !d.Next.Equal(d.Ran)
	wanted := changed || before < first && j.same >= first
	if changed {
		j.same = 0
	}
	if !wanted || j.traced == j.config.Run.TraceSteps {
		return
	}
	j.traced++
	j.tell(func() error {
		return j.observe.Trace(trace.Step{Step: d.Step, Clock: j.clock, Stages: d.Measured.Instructions})
	})
}

// metrics returns the metrics of a step, and its Course for the log of costs. The log divides the
// seconds of microbatches by the costs of the phase.
func (j *Journal) metrics(d Done) (Metrics, Course) {
	s, a, c := d.Measured.Summary, d.Analysis, j.config
	seconds, spent := s.Finish-d.Start, d.Deciding+d.Moving
	batch := c.Parallel.MicrobatchSize * c.Parallel.Microbatches * d.Ran.Mesh.Replicas
	tokens, now := float64(batch*c.Model.Sequence), time.Now()
	a.Idle.Balancing = spent
	m := Metrics{
		Step: d.Step, Clock: j.clock, Loss: Float(d.Loss), GradNorm: Float(d.Norm), LR: Float(d.LR), Skipped: d.Skipped,
		BatchSize: batch, Sparsity: Float(j.sparsity),
		Time: now.UTC().Truncate(time.Millisecond), WallSeconds: Float(now.Sub(j.began).Round(time.Microsecond).Seconds()),
		StepSeconds: Float(seconds), BalanceSeconds: Float(spent), MeasureSeconds: Float(d.Measuring), MoveSeconds: Float(d.Moving), TokensPerSecond: Float(tokens / seconds),
		Makespan: Float(s.Makespan()), BubbleRatio: Float(s.BubbleRatio()), Imbalance: Float(trace.Imbalance(s.Busy)),
		Predicted: Float(a.Predicted), LowerBound: Float(a.LowerBound), Bottleneck: Float(a.Bottleneck), Optimum: Float(a.Optimum), Headroom: Float(a.Headroom), Idle: a.Idle,
		Schedule: string(d.Ran.Schedule.Kind), Cuts: d.Ran.Cuts, Vee: d.Ran.Map().Vee, LayersPerStage: d.Ran.LayersPerStage(),
		Ranks: d.Ran.Mesh.Size(), Nodes: j.nodes(d.Ran),
		Counts: layerCounts(d.Measured.Counts, d.Measured.Layers),
	}
	if j.clock == Simulated {
		m.Time, m.WallSeconds, m.Sparsity = time.Time{}, Float(d.Elapsed), Float(math.NaN())
		if d.Steps > 1 {
			m.Steps = d.Steps
		}
	}
	if m.Replayed = c.Dynamic.Replay != ""; m.Replayed {
		m.Loss = Float(math.NaN())
	}
	if n := d.Ran.Schedule.Microbatches; n != c.Parallel.Microbatches {
		m.Microbatches = n
	}
	if dense := d.Why.Reference.Makespan; dense > 0 {
		m.Throughput = Float(dense / s.Makespan())
	}
	for stage, bytes := range a.Bytes {
		if d.Measured.Memory == nil {
			m.BytesPerStage = append(m.BytesPerStage, bytes)
			continue
		}
		own := d.Measured.Memory[stage]
		m.BytesPerStage, m.AllocatedPerStage = append(m.BytesPerStage, bytes+own.Kept), append(m.AllocatedPerStage, own.Allocated+own.Kept)
		if d.Resident {
			m.ResidentPerStage = append(m.ResidentPerStage, own.Resident)
		}
	}
	if v := d.Validation; v != nil {
		m.ValidationLoss, m.ValidationPerplexity, m.ValidationSeconds = Float(v.Loss), Float(v.Perplexity()), Float(v.Seconds)
		if v.leave() {
			m.ValidationLastLoss = Float(v.Last)
		}
	}
	m.Plasticity, m.EvaluationSeconds = d.Plasticity, Float(d.Evaluating)
	if j.first < 0 {
		j.first = d.Step
	}
	if joules := d.Measured.Joules; joules > 0 {
		m.JoulesPerToken = Float(joules / (float64(d.Step-j.first+1) * tokens))
	}
	run := Course{
		Layout: d.Ran, Latency: c.Comm.LatencySeconds, Bandwidth: c.Comm.BandwidthBytes, Between: j.between,
		DelayMost: c.Comm.DelayMost, Seed: c.Run.Seed, Simulated: j.clock == Simulated, Step: d.Step, Makespan: s.Makespan(), Scale: a.Took,
		Rest: max(0, seconds-s.Makespan()), Balancing: spent * float64(max(1, d.Steps)),
	}
	return m, run
}

// nodes returns how many hosts have a rank of the layout.
func (j *Journal) nodes(l layout.Layout) int {
	seen := make(map[string]bool)
	for rank := range l.Mesh.Size() {
		seen[j.hosts[l.World(rank)]] = true
	}
	return len(seen)
}
