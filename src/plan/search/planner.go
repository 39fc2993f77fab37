package search

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/piece"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Planner knows everything that a step depends on except costs and cuts: settings, network, number of
// stages, microbatches and replicas. Its answers are pure functions of costs and cuts. Its fields are
// to read only. Several goroutines may use one Planner.
type Planner struct {
	Kind         schedule.Kind
	Map          partition.Map
	Microbatches int
	Network      sim.Network
	Mesh         layout.Mesh
	Ranks        []int            // by rank of Mesh: its rank in the launched world (see layout.Layout); nil: the same rank
	pieces       piece.Assignment // of layers, on which replicas

	// base is the schedule itself, where it follows from numbers alone. For list and auto
	// it is the schedule before costs are known. Cuts must fit the memory under base; what
	// memory is left allows more microbatches in flight.
	base   schedule.Schedule
	Other  *Planner        // planner of the same settings for the other map: one chunk on each stage, or two in a V; nil: only Map is allowed
	found  *recent         // schedules
	peaks  []schedule.Peak // of base, by virtual stage
	most   int             // microbatches of a stage's chunks that settings allow in flight, where the schedule follows from costs
	limit  int64           // bytes of a rank; 0: no limit
	Config config.Config
	fixed  FixedBytes // nil: none

	twice []cost.Bytes // by layer that may compute its forward twice, where that is planned; nil: nothing is planned
	given []bool       // by layer: which do, whatever costs and memory say; nil: they decide
	By    balance.By   // load of a layer that is balanced: seconds or parameters (balance.by)
}

// New returns the planner of settings on a network. fixed returns the bytes of a stage besides its
// layers (see Fixed); nil: layers are all that stages hold. The error says that stages and
// microbatches do not allow the schedule, or that the schedule's file is not legal.
func New(c config.Config, network sim.Network, fixed FixedBytes) (*Planner, error) {
	p, err := newPlanner(c, network, fixed, c.Schedule.Virtual())
	if err == nil && canFold(c) {
		if vee, err := newPlanner(c, network, fixed, 2); err == nil {
			p.Other, vee.Other = vee, p
		}
	}
	return p, err
}

// newPlanner returns the planner of a number of chunks on a stage, for kinds that
// have a choice.
func newPlanner(c config.Config, network sim.Network, fixed FixedBytes, chunks int) (*Planner, error) {
	p := &Planner{
		Kind: schedule.Kind(c.Schedule.Kind), Microbatches: c.Parallel.Microbatches, Network: network,
		found: new(recent),
		Mesh:  layout.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: layout.RankOrder(c.Mesh.Order)},
		limit: c.Balance.MemoryLimitBytes, Config: c, fixed: fixed, By: balance.By(c.Balance.By),
	}
	var err error
	switch p.Kind {
	case schedule.KindFile:
		p.base, err = readSchedule(c)
	case schedule.KindList, schedule.KindAuto:
		p.most = c.Schedule.InFlight
		if p.most == 0 {
			p.most = 2*c.Parallel.Stages - 1
		}
		p.most = chunks * min(p.most, c.Parallel.Microbatches)
		p.base, err = initialSchedule(c.Parallel.Stages, chunks, c.Parallel.Microbatches, p.most)
	default:
		p.base, err = schedule.New(p.Kind, c.Parallel.Stages, chunks, c.Parallel.Microbatches)
		if p.Kind == schedule.KindZBV && err == nil {
			p.most = p.base.Cap(0)
		}
	}
	if err != nil {
		return nil, err
	}
	if n := p.base.Map.Chunks * p.Microbatches; n > comm.TagMicrobatches && !p.base.Ascending() {
		return nil, fmt.Errorf("parallel.microbatches = %d, schedule.kind = %q: wanted at most %d microbatches of all chunks of a stage", p.Microbatches, p.Kind, comm.TagMicrobatches)
	}
	p.Map, p.peaks = p.base.Map, p.base.Peaks()
	if c.Model.Recompute == "plan" {
		all := c
		all.Model.Recompute = "block"
		for _, l := range Dense(all).Layers {
			p.twice = append(p.twice, l.Bytes)
		}
	}
	return p, nil
}

// Configured returns New with the network of the settings and with Fixed.
func Configured(c config.Config) (*Planner, error) {
	return New(c, sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes), Fixed(c))
}

// Resize returns the planner of the same settings for another number of stages and of microbatches.
// The stages lie on the first ranks of the launched world. The sequences of a step stay the same: with
// fewer microbatches each is larger. The error says which number is not possible.
func (p *Planner) Resize(stages, microbatches int) (*Planner, error) {
	if stages == p.Map.Stages && microbatches == p.Microbatches {
		return p, nil
	}
	c, fixed := p.Config, p.fixed
	c.Parallel.Stages = stages
	if samples := c.Parallel.Microbatches * c.Parallel.MicrobatchSize; microbatches != p.Microbatches {
		if microbatches < 1 || samples%microbatches != 0 {
			return nil, fmt.Errorf("%d microbatches, want a divisor of the %d sequences of a step of a replica", microbatches, samples)
		}
		c.Parallel.Microbatches, c.Parallel.MicrobatchSize = microbatches, samples/microbatches
		if fixed != nil {
			fixed = Fixed(c)
		}
	}
	return New(c, p.Network, fixed)
}

// onRanksOf returns the planner of the same settings for the ranks of a layout, and for what
// pieces of layers they hold.
func (p *Planner) onRanksOf(l layout.Layout) *Planner {
	if slices.Equal(p.Ranks, l.Ranks) && p.pieces.Equal(l.Pieces) {
		return p
	}
	q := *p
	q.Ranks, q.pieces, q.found = l.Ranks, l.Pieces, new(recent)
	if p.Other != nil {
		other := *p.Other
		other.Ranks, other.pieces, other.found = l.Ranks, l.Pieces, new(recent)
		q.Other, other.Other = &other, &q
	}
	return &q
}

// worldRank returns the rank of the launched world of a stage of a replica.
func (p *Planner) worldRank(stage, replica int) int {
	rank := p.Mesh.Rank(stage, replica)
	if p.Ranks == nil {
		return rank
	}
	return p.Ranks[rank]
}

// Layout returns the layout of some cuts with the schedule that Schedule returns. Where
// model.recompute is "plan" it also says which layers recompute.
func (p *Planner) Layout(t cost.Table, cuts partition.Partition) layout.Layout {
	return p.complete(t, p.layout(cuts, p.Schedule(t, cuts)))
}

// layout returns the layout of some cuts and a schedule, without the choice of layers that
// compute their forward twice.
func (p *Planner) layout(cuts partition.Partition, s schedule.Schedule) layout.Layout {
	l := layout.New(cuts, s, p.Mesh.Replicas, p.Mesh.Order)
	l.Ranks, l.Pieces = p.Ranks, p.pieces
	return l
}

// initialSchedule returns the schedule before costs are known: 1F1B, or zb-v for two chunks.
// If that has more microbatches in flight than allowed, it is a list for equal stages.
func initialSchedule(stages, chunks, microbatches, most int) (schedule.Schedule, error) {
	kind := schedule.Kind1F1B
	if chunks == 2 {
		kind = schedule.KindZBV
	}
	s, err := schedule.New(kind, stages, chunks, microbatches)
	if err != nil || s.Cap(0) <= most {
		return s, err
	}
	return schedule.List(schedule.ListOptions{
		Map: s.Map, Costs: slices.Repeat([]cost.Stage{{Forward: 1, Input: 1, Weight: 1}}, s.Map.Virtual()), Microbatches: microbatches,
		InFlight: slices.Repeat([]int{most}, stages),
	}), nil
}

// readSchedule reads the schedule of the settings' file.
func readSchedule(c config.Config) (schedule.Schedule, error) {
	f, err := files.Open(c.Schedule.File, files.Schedule)
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("schedule.file: %w", err)
	}
	defer f.Close()
	s, err := schedule.ParseCSV(c.Schedule.File, f)
	if err != nil {
		return s, fmt.Errorf("schedule.file: %w", err)
	}
	if s.Map.Stages != c.Parallel.Stages || s.Microbatches != c.Parallel.Microbatches {
		return s, fmt.Errorf("schedule.file: %s is for %d stages and %d microbatches; parallel.stages = %d, parallel.microbatches = %d",
			c.Schedule.File, s.Map.Stages, s.Microbatches, c.Parallel.Stages, c.Parallel.Microbatches)
	}
	if layers := c.Layers(); s.Map.Virtual() > layers {
		return s, fmt.Errorf("schedule.file: %s has %d chunks of the chain, which has %d layers", c.Schedule.File, s.Map.Virtual(), layers)
	}
	return s, nil
}

// Adapts reports whether the schedule depends on costs: of kinds list, auto and zb-v. The schedules of
// other kinds are the same for all costs.
func (p *Planner) Adapts() bool {
	return p.Kind == schedule.KindList || p.Kind == schedule.KindAuto || p.Kind == schedule.KindZBV
}

// Step returns the input for a simulation of a step (see sim.Run). One replica stands for all: each
// stage is as slow as the slowest replica's. Microbatches differ as t.Scale says; without t.Scale all
// microbatches are the mean one.
func (p *Planner) Step(t cost.Table, cuts partition.Partition, s schedule.Schedule) sim.Step {
	p = p.selectMap(s.Map)
	t = p.effective(t, p.choose(t, cuts, s.Peaks))
	step := sim.Step{
		Schedule: s, Costs: p.stageCosts(t, cuts), Bytes: Messages(t, cuts), Network: p.Network, Dispatch: t.Dispatch, Mesh: p.Mesh, Ranks: p.Ranks,
		Sums: p.Sums(),
	}
	step.PerMicrobatch = cost.Phase{Table: p.exchanging(t)}.PerMicrobatch(cuts, p.Map, s.Microbatches)
	for v, row := range step.PerMicrobatch {
		for m := range row {
			row[m] = row[m].Scale(p.slowdown(p.Map.Stage(v)))
		}
	}
	step.Network.Slow = nil
	return step
}

// Schedule returns the schedule for costs at some cuts: the base schedule, or if Adapts the fastest of
// several that fits the memory.
func (p *Planner) Schedule(t cost.Table, cuts partition.Partition) schedule.Schedule {
	if !p.Adapts() {
		return p.base
	}
	return p.found.schedule(t, cuts, p.findSchedule)
}

// findSchedule finds the schedule for costs at some cuts.
func (p *Planner) findSchedule(t cost.Table, cuts partition.Partition) schedule.Schedule {
	step := p.Step(t, cuts, p.base)
	evaluate := func(s schedule.Schedule) float64 {
		if p.Kind == schedule.KindList && s.Kind != schedule.KindList {
			return math.Inf(1)
		}
		if p.limit > 0 && (p.Map.Chunks > 1 || p.plans()) && !p.Fits(t, p.layout(cuts, s)) {
			return math.Inf(1)
		}
		return p.Seconds(t, p.layout(cuts, s))
	}
	s, seconds := Auto(p.options(step, p.caps(t, cuts)), evaluate)
	// Lists are kept to a cap that holds whatever they do; the base is known to fit.
	if math.IsInf(seconds, 1) || evaluate(p.base) < seconds {
		return p.base
	}
	if p.Kind == schedule.KindZBV {
		s.Kind = p.Kind
	}
	return s
}

// options returns what a list schedule of a step is made for.
func (p *Planner) options(step sim.Step, caps []int) schedule.ListOptions {
	o := schedule.ListOptions{Map: p.Map, Costs: step.Costs, Dispatch: step.Dispatch, Microbatches: p.Microbatches, InFlight: caps}
	if p.limit > 0 && caps != nil && p.Map.Chunks == 2 {
		o.OfChunk = p.capsByChunk(caps)
	}
	for v := range len(step.Costs) - 1 {
		if step.Bytes != nil {
			o.Message = append(o.Message, p.link(v).Seconds(step.Bytes[v]))
		}
	}
	return o
}

// link returns the link between a virtual stage and the one behind it, either way.
func (p *Planner) link(v int) sim.Link {
	return p.Network.Link(p.worldRank(p.Map.Stage(v), 0), p.worldRank(p.Map.Stage(v+1), 0))
}

// cutsSeconds is Seconds at some cuts in the schedule that suits the costs.
func (p *Planner) cutsSeconds(t cost.Table, cuts partition.Partition) float64 {
	return p.Seconds(t, p.Layout(t, cuts))
}

// Seconds predicts the seconds of a step from the first forward to the end of the sums of gradients
// over replicas. Cuts and schedules are compared by Seconds.
func (p *Planner) Seconds(t cost.Table, l layout.Layout) float64 {
	if p.Mesh.Replicas <= 1 {
		return p.Makespan(t, l)
	}
	p = p.keepChoice(l)
	r := sim.Replicas(p.Step(t, l.Cuts, l.Schedule), l.Cuts, t.Layers)
	return r.Seconds - r.Replicas[0].Start
}

// Makespan predicts the seconds of a step from the first forward to the last backward.
func (p *Planner) Makespan(t cost.Table, l layout.Layout) float64 {
	return sim.Run(p.keepChoice(l).Step(t, l.Cuts, l.Schedule)).Makespan()
}

// recent is a cache of the partition problem and the newest schedules: one decision asks
// several times for the problem, and for the schedule of the same cuts.
type recent struct {
	mutex sync.Mutex
	costs cost.Table
	list  []layout.Layout // the newest last; only cuts and schedules

	weighted *balance.Problem // of these costs; nil: not asked for yet
}

// mostRecent is how many schedules are kept: for the present cuts, and the ends of the
// searches for better ones.
const mostRecent = 6

// forget forgets what was found for other costs.
func (r *recent) forget(t cost.Table) {
	if r.costs.Equal(t) {
		return
	}
	r.costs, r.list, r.weighted = t, nil, nil
	r.costs.Layers, r.costs.Slow, r.costs.Fixed = slices.Clone(t.Layers), slices.Clone(t.Slow), slices.Clone(t.Fixed)
}

// problem returns the partition problem for costs, which find finds.
func (r *recent) problem(t cost.Table, find func() balance.Problem) balance.Problem {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.forget(t)
	if r.weighted == nil {
		found := find()
		r.weighted = &found
	}
	return *r.weighted
}

// schedule returns the schedule for costs at some cuts, which find finds.
func (r *recent) schedule(t cost.Table, cuts partition.Partition, find func(cost.Table, partition.Partition) schedule.Schedule) schedule.Schedule {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.forget(t)
	for _, s := range r.list {
		if s.Cuts.Equal(cuts) {
			return s.Schedule
		}
	}
	found := find(t, cuts)
	r.list = append(r.list[max(0, len(r.list)-mostRecent+1):], layout.Layout{Cuts: slices.Clone(cuts), Schedule: found})
	return found
}
