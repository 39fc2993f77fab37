package figures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/lab/roofline"
	"dynmo/src/lab/study"
	"dynmo/src/plan/search"
)

// cell is one simulated run, without its balancer.
type cell struct {
	workload     workload
	model        modelFile
	of           caseOf
	stages       int
	replicas     int
	head         bool // whether the head takes its seconds, or none
	half         bool // halves of blocks move, whatever is asked for
	seed         uint64
	delay        float64 // most of comm.Delay; 0: none
	schedule     string  // "": the one of most figures
	microbatches int     // of a replica; 0: four times the stages
}

// isChanged reports whether the workload's file says how costs change, and nothing is made up.
func (c cell) isChanged() bool { return len(c.of.Changes) > 0 || c.workload.Kind == "none" }

// isRandom reports whether a seed changes the outcome: of made-up costs, or of delays.
func (c cell) isRandom() bool { return !c.isChanged() || c.delay > 1 }

// run is a cell that is ready to be simulated.
type run struct {
	series  cost.Series
	options study.Options
}

// sequences returns how many sequences all replicas train in a step.
func (r run) sequences() float64 {
	p := r.options.Config.Parallel
	return float64(p.Microbatches * p.MicrobatchSize * p.Replicas)
}

// tokens returns the tokens per second of a step that takes the given seconds.
func (r run) tokens(seconds float64) float64 {
	return r.sequences() * float64(r.options.Config.Model.Sequence) / seconds
}

// costs returns the name of the cost table of a workload.
func (s *studies) costs(w workload) string {
	if w.Costs != "" {
		return w.Costs
	}
	return s.Costs
}

// zeroBubble is the schedule of most figures: the zero-bubble schedule within the memory of 1F1B, which
// stands for the "almost zero-bubble" one of the paper.
const zeroBubble = "zb-h1"

// prepare makes the settings and the costs of a cell: the microbatches are four times the stages,
// of two sequences, as in appendix A of the paper.
func (s *studies) prepare(c cell) (run, error) {
	fail := func(err error) (run, error) {
		return run{}, fmt.Errorf("%s, %s, %s: %w", c.workload.Title, c.model.Name, c.of.Name, err)
	}
	gpu, err := roofline.Known(s.costs(c.workload))
	if err != nil {
		return fail(err)
	}
	sets := append(slices.Concat(c.model.Set, c.of.Set), "parallel.microbatch_size=2", "balance.memory_limit_bytes=0", "model.grain="+s.Grain)
	if c.half {
		sets = append(sets, "model.grain=half")
	}
	if gpu.Scores {
		sets = append(sets, "device.precision=f32")
	}
	file := c.model.File
	alone, err := config.Load(file, append(slices.Clone(sets), "parallel.stages=1", "parallel.replicas=1", "schedule.kind=1f1b", "balance.kind=uniform"))
	if err != nil {
		return fail(err)
	}
	table, err := s.table(file+fmt.Sprint(sets, gpu.Name), alone, gpu)
	if err != nil {
		return fail(err)
	}
	sets = append(sets, fmt.Sprint("parallel.stages=", c.stages), fmt.Sprint("parallel.replicas=", c.replicas),
		fmt.Sprint("parallel.microbatches=", cmp.Or(c.microbatches, 4*c.stages)), "schedule.kind="+cmp.Or(c.schedule, zeroBubble), "balance.kind=partition",
		fmt.Sprint("run.seed=", c.seed), fmt.Sprint("simulate.move_delay_most=", max(1, c.delay)), fmt.Sprint("simulate.attention=", table.attention))
	settings, err := config.Load(file, sets)
	if err != nil {
		return fail(err)
	}
	network, err := roofline.Network(gpu.Name)
	if err != nil {
		return fail(err)
	}
	network.Delay = comm.Delay{Most: c.delay, Seed: c.seed}
	settings.Run.TraceSteps = 0
	r := run{options: study.Options{Config: settings, Network: network, Fixed: search.Fixed(settings), Memo: new(search.Memo)}}
	if r.series, err = c.changed(table.Table, &r.options); err != nil {
		return fail(err)
	}
	if !c.head && !c.of.Head {
		r.series = study.WithHead(r.series, settings.Model.HeadShards, 0)
	}
	return r, nil
}

// costTable is a table of dense costs, and the share of a block in attention over the scores.
type costTable struct {
	cost.Table
	attention float64
}

// table returns the costs of the settings, which it makes once for a key.
func (s *studies) table(key string, alone config.Config, gpu roofline.GPU) (t costTable, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if t, known := s.tables[key]; known {
		return t, nil
	}
	if t.Table, err = roofline.Costs(alone, gpu); err != nil {
		return t, err
	}
	dense := alone
	dense.Dynamic.Kind = "none"
	if t.attention, err = roofline.AttentionShare(dense, gpu); err != nil {
		return t, err
	}
	s.tables[key] = t
	return t, nil
}

// changed returns the costs of the run, phase by phase.
func (c cell) changed(dense cost.Table, o *study.Options) (cost.Series, error) {
	w := c.workload
	w.From, w.Every = cmp.Or(c.of.From, w.From), cmp.Or(c.of.Every, w.Every)
	if c.isChanged() {
		series := cost.Series{{Table: dense}}
		for _, x := range c.of.Changes {
			next := cost.Phase{Step: x.Step, Change: c.of.Name, Table: dense}
			next.Layers = x.apply(dense.Layers)
			if x.Step == 0 {
				series = nil
			}
			series = append(series, next)
		}
		for i := range series {
			end := w.Steps
			if i+1 < len(series) {
				end = series[i+1].Step
			}
			series[i].Steps = end - series[i].Step
		}
		return series, nil
	}
	if c.of.Steps > 0 {
		w.Steps, w.Interval = c.of.Steps, 1
	}
	return study.Generate(w.Kind, dense, o, madeUp(w), w.Interval)
}

// apply returns the chain with the change's shares.
func (x change) apply(layers []cost.Layer) []cost.Layer {
	layers = slices.Clone(layers)
	var blocks []int // by layer: the block, -1 for others
	count, last := 0, ""
	for _, l := range layers {
		name, _, _ := strings.Cut(strings.TrimPrefix(l.Name, "block."), ".")
		if !strings.HasPrefix(l.Name, "block.") {
			blocks = append(blocks, -1)
			continue
		}
		if name != last {
			count, last = count+1, name
		}
		blocks = append(blocks, count-1)
	}
	for i, b := range blocks {
		if b >= 0 {
			share := x.Shares[b*len(x.Shares)/count]
			layers[i] = layers[i].WithSeconds(layers[i].Stage().Scale(share))
		}
	}
	return layers
}

// balancers are those of the paper's figure 3, the static ones first.
var balancers = []struct {
	name, kind, by string
	role           Role
}{
	{"uniform (Megatron-LM)", "uniform", "time", roleStatic},
	{"parameters (DeepSpeed)", "param", "time", roleStatic},
	{"partition by time", "partition", "time", roleOurs},
	{"diffusion by time", "diffusion", "time", roleOurs},
	{"partition by parameters", "partition", "param", roleOurs},
	{"diffusion by parameters", "diffusion", "param", roleOurs},
}

// firstDynamic is the first of balancers that moves layers.
const firstDynamic = 2

// outcome is what a cell comes to, under every balancer.
type outcome struct {
	tokens    []float64  // per second, by balancer
	idle      []float64  // bubble ratio of the run, by balancer
	dense     float64    // tokens per second of the dense model on uniform cuts
	ceiling   float64    // of the speedup over the better static cuts
	ofBest    float64    // of the first seed: throughput of the best balancer's cuts over that of the best contiguous cuts
	even      float64    // tokens per second of steps in which all replicas of a stage have the same work, at the best cuts; 0: replicas do not differ
	overheads [3]float64 // shares of the best balancer's time: measuring, deciding, moving
}

// best returns the index of the largest of some values, from a first one on.
func best(list []float64, from, to int) int {
	k := from
	for i := from; i < to; i++ {
		if list[i] > list[k] {
			k = i
		}
	}
	return k
}

// static returns which of the static cuts is the fastest, and moving which of the other balancers.
func (o outcome) static() int { return best(o.tokens, 0, firstDynamic) }
func (o outcome) moving() int { return best(o.tokens, firstDynamic, len(o.tokens)) }

// balancing returns the speedup of the best moving balancer over the better static cuts.
func (o outcome) balancing() float64 { return o.tokens[o.moving()] / o.tokens[o.static()] }

// total returns the speedup of the best moving balancer over the dense model.
func (o outcome) total() float64 { return o.tokens[o.moving()] / o.dense }

// simulate runs a cell under every balancer.
func (s *studies) simulate(c cell) (outcome, error) {
	var out outcome
	r, err := s.prepare(c)
	if err != nil {
		return out, err
	}
	runs := make([]*study.Run, len(balancers))
	for i, b := range balancers {
		o := r.options
		o.Config.Balance.Kind, o.Config.Balance.By, o.Static = b.kind, b.by, b.role == roleStatic
		if runs[i], err = study.Simulate(r.series, o); err != nil {
			return out, fmt.Errorf("%s, %s, %s: %w", c.workload.Title, c.model.Name, b.name, err)
		}
		out.tokens = append(out.tokens, r.tokens(runs[i].Seconds/float64(runs[i].Steps)))
		out.idle = append(out.idle, 1-runs[i].Idle.Busy/runs[i].Idle.Makespan())
	}
	first := r.options
	first.Config.Balance.Kind = "uniform"
	dense, err := study.Plan(s.dense(r, c), first)
	if err != nil {
		return out, err
	}
	out.dense = r.tokens(dense.Seconds)
	if last := r.series[len(r.series)-1]; last.Routed != nil {
		last.Scale = nil
		even, err := study.Plan(last.Table, r.options)
		if err != nil {
			return out, err
		}
		out.even = r.tokens(even.Seconds)
	}
	x := runs[out.moving()]
	out.ceiling = study.CeilingOver(runs[out.static()], x)
	out.overheads = [3]float64{x.Measuring / x.Seconds, x.Deciding / x.Seconds, x.Moving / x.Seconds}
	if c.seed == 1 {
		out.ofBest, err = ofBest(r, x)
	}
	return out, err
}

// dense returns the costs of the model before anything changed.
func (s *studies) dense(r run, c cell) cost.Table {
	c.of.Changes, c.workload.Kind = nil, "none"
	if d, err := s.prepare(c); err == nil {
		return d.series[0].Mean()
	}
	return r.series[0].Mean()
}

// mostPhases is how many phases ofBest plans anew.
const mostPhases = 10

// ofBest returns the seconds that the best contiguous cuts of some phases would take over those
// that the run's last layout of each took.
func ofBest(r run, x *study.Run) (float64, error) {
	stride := max(1, len(r.series)/mostPhases)
	least, took := 0.0, 0.0
	for i := 0; i < len(r.series); i += stride {
		p := r.series[i]
		end := p.Step + p.Steps - 1
		k := 0
		for k+1 < len(x.Segments) && x.Segments[k+1].Step <= end {
			k++
		}
		plan, err := study.Plan(p.Mean(), r.options)
		if err != nil {
			return 0, err
		}
		least, took = least+plan.Seconds*float64(p.Steps), took+float64(x.Segments[k].StepSeconds)*float64(p.Steps)
	}
	return least / took, nil
}
