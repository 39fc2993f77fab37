package plan

import (
	"fmt"
	"math"
	"os"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Planner knows what a step is planned for: everything but costs and cuts. Its
// answers are pure functions of them, so every rank that asks gets the same.
type Planner struct {
	Kind         schedule.Kind
	Map          partition.Map
	Microbatches int
	Network      sim.Network
	Mesh         mesh.Mesh

	// base is the schedule itself, where it follows from numbers alone. For list
	// and auto it is the one before costs are known: what it holds is what cuts must
	// have room for, and what memory is left lets more fly.
	base   schedule.Schedule
	peaks  []schedule.Peak // of base, by virtual stage
	most   int             // microbatches in flight that settings allow in list and auto; 0: any
	limit  int64           // bytes of a rank; 0: no limit
	config config.Config
	fixed  func(virtual int, peak schedule.Peak) int64 // bytes of a virtual stage that no layer accounts for
}

// FixedBytes returns the bytes of a virtual stage that do not depend on which
// layers it holds, in a schedule with this peak.
type FixedBytes func(m partition.Map, virtual int, peak schedule.Peak) int64

// New returns the planner of settings on a network. fixed may be nil, which
// means no such bytes. Errors are the settings': a schedule that stages and
// microbatches do not allow, a file that holds no legal one.
func New(c config.Config, network sim.Network, fixed FixedBytes) (*Planner, error) {
	p := &Planner{
		Kind: schedule.Kind(c.Schedule.Kind), Microbatches: c.Parallel.Microbatches, Network: network,
		Mesh:  mesh.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: mesh.Order(c.Mesh.Order)},
		limit: c.Balance.MemoryLimitBytes, config: c,
	}
	var err error
	switch p.Kind {
	case schedule.KindFile:
		p.base, err = fromFile(c)
	case schedule.KindList, schedule.KindAuto:
		p.most = c.Schedule.InFlight
		if p.most == 0 {
			p.most = 2*c.Parallel.Stages - 1
		}
		p.most = min(p.most, c.Parallel.Microbatches)
		p.base, err = start(c.Parallel.Stages, c.Parallel.Microbatches, p.most)
	default:
		p.base, err = schedule.New(p.Kind, c.Parallel.Stages, c.Schedule.Virtual(), c.Parallel.Microbatches)
	}
	if err != nil {
		return nil, err
	}
	p.Map, p.peaks = p.base.Map, p.base.Peaks()
	p.fixed = func(virtual int, peak schedule.Peak) int64 {
		if fixed == nil {
			return 0
		}
		return fixed(p.Map, virtual, peak)
	}
	return p, nil
}

// start returns the schedule before costs are known: 1F1B, or, if fewer
// microbatches may be in flight than it has, a list for equal stages.
func start(stages, microbatches, most int) (schedule.Schedule, error) {
	if most >= min(stages, microbatches) {
		return schedule.New(schedule.Kind1F1B, stages, 1, microbatches)
	}
	return schedule.List(schedule.ListOptions{
		Costs: slices.Repeat([]cost.Stage{{Forward: 1, Input: 1, Weight: 1}}, stages), Microbatches: microbatches,
		InFlight: slices.Repeat([]int{most}, stages),
	}), nil
}

// fromFile reads the schedule of the settings' file.
func fromFile(c config.Config) (schedule.Schedule, error) {
	f, err := os.Open(c.Schedule.File)
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

// Problem states what is to be cut, over virtual stages. Where a stage holds
// several, its memory is checked by Fits alone.
func (p *Planner) Problem(t cost.Table, by balance.By) balance.Problem {
	n, limit := p.Map.Virtual(), p.limit
	if p.Map.Chunks > 1 {
		limit = 0
	}
	q := balance.New(t, by, n, p.base.InFlight(), limit)
	spread := func(list []float64, share float64) []float64 {
		if list == nil {
			return nil
		}
		out := make([]float64, n)
		for v := range out {
			out[v] = list[p.Map.Stage(v)] * share
		}
		return out
	}
	q.Slow, q.Fixed = spread(q.Slow, 1), spread(q.Fixed, 1/float64(p.Map.Chunks))
	if by == balance.ByTime {
		q.Slow = p.slowness(q.Slow, p.Map)
	}
	if b := p.config.Balance; b.Kind == "diffusion" && b.Gaps == "arrival" && by == balance.ByTime {
		q.Fixed = p.arrivals(t, q.Fixed)
	}
	for v, peak := range p.peaks {
		q.Between = append(q.Between, peak.Between)
		q.FixedBytes = append(q.FixedBytes, p.fixed(v, peak))
	}
	return q
}

// arrivals adds to the fixed seconds of every stage the time until its input
// arrives from the stage before: a message with the largest output of any layer,
// and the gradient that comes back over the same link. (Paper, E.1: diffusion's
// gaps include the transfer, so that work leaves a stage behind a slow link.)
func (p *Planner) arrivals(t cost.Table, fixed []float64) []float64 {
	if fixed == nil {
		fixed = make([]float64, p.Map.Stages)
	}
	bytes := int64(0)
	for _, l := range t.Layers[:len(t.Layers)-1] {
		bytes = max(bytes, l.Output)
	}
	for s := 1; s < p.Map.Stages; s++ {
		there, back := p.Network.Link(p.Mesh.Rank(s-1, 0), p.Mesh.Rank(s, 0)), p.Network.Link(p.Mesh.Rank(s, 0), p.Mesh.Rank(s-1, 0))
		fixed[s] += p.Network.Delay.Mean() * (there.Seconds(bytes) + back.Seconds(bytes))
	}
	return fixed
}

// Bytes returns the memory of every stage at some cuts, by stage, in a schedule
// with these peaks, by virtual stage.
func (p *Planner) Bytes(t cost.Table, cuts partition.Partition, peaks []schedule.Peak) []int64 {
	bytes := make([]int64, p.Map.Stages)
	for v, peak := range peaks {
		at := &bytes[p.Map.Stage(v)]
		*at += p.fixed(v, peak)
		lo, hi := cuts.Range(v)
		for _, l := range t.Layers[lo:hi] {
			*at += l.Bytes.Static() + int64(peak.InFlight)*l.Bytes.Activations + int64(peak.Between)*l.Bytes.Held
		}
	}
	return bytes
}

// missing returns the bytes by which stages exceed the limit, all together.
func (p *Planner) missing(t cost.Table, cuts partition.Partition) int64 {
	if p.limit == 0 {
		return 0
	}
	over := int64(0)
	for _, b := range p.Bytes(t, cuts, p.peaks) {
		over += max(0, b-p.limit)
	}
	return over
}

// Adapts reports whether the schedule follows from costs.
func (p *Planner) Adapts() bool { return p.Kind == schedule.KindList || p.Kind == schedule.KindAuto }

// Base returns the schedule before anything is measured.
func (p *Planner) Base() schedule.Schedule { return p.base }

// Caps returns how many microbatches may be in flight on every stage in list
// and auto: what memory leaves room for at these cuts, at most what the
// settings allow, at least one. It is nil for other kinds.
func (p *Planner) Caps(t cost.Table, cuts partition.Partition) []int {
	if !p.Adapts() {
		return nil
	}
	caps := make([]int, p.Map.Stages)
	for s := range caps {
		caps[s] = p.most
		if p.limit == 0 {
			continue
		}
		lo, hi := cuts.Range(s)
		static, each := int64(0), int64(0)
		for _, l := range t.Layers[lo:hi] {
			static += l.Bytes.Static()
			each += l.Bytes.Activations + l.Bytes.Held
		}
		for caps[s] > 1 && static+int64(caps[s])*each+p.fixed(s, schedule.Peak{InFlight: caps[s], Between: caps[s]}) > p.limit {
			caps[s]--
		}
	}
	return caps
}

// messages returns the bytes that every virtual stage sends on for a
// microbatch: the output of its last layer.
func messages(t cost.Table, cuts partition.Partition) []int64 {
	bytes := make([]int64, cuts.Stages())
	for v := range len(bytes) - 1 {
		if end := cuts[v+1]; end > 0 {
			bytes[v] = t.Layers[end-1].Output
		}
	}
	return bytes
}

// Step returns what there is to simulate at some cuts when one replica stands
// for all: every stage's rank is as slow as the slowest of its replicas.
func (p *Planner) Step(t cost.Table, cuts partition.Partition, s schedule.Schedule) sim.Step {
	step := sim.Step{
		Schedule: s, Costs: p.placed(t, cuts), Bytes: messages(t, cuts), Network: p.Network, Mesh: p.Mesh,
	}
	step.Network.Slow = nil
	return step
}

// Schedule returns the schedule for costs at some cuts.
func (p *Planner) Schedule(t cost.Table, cuts partition.Partition) schedule.Schedule {
	return p.scheduleFor(p.Step(t, cuts, p.base), p.Caps(t, cuts))
}

// scheduleFor returns the schedule for the costs of a step, under caps.
func (p *Planner) scheduleFor(step sim.Step, caps []int) schedule.Schedule {
	if !p.Adapts() {
		return p.base
	}
	evaluate := func(s schedule.Schedule) float64 {
		if p.Kind == schedule.KindList && s.Kind != schedule.KindList {
			return math.MaxFloat64
		}
		step.Schedule = s
		return sim.Run(step).Makespan()
	}
	s, seconds := Auto(p.options(step, caps), evaluate)
	// Lists are kept to a cap that holds whatever they do; the base is known to fit.
	if caps != nil && evaluate(p.base) < seconds {
		return p.base
	}
	return s
}

// Fits reports whether a schedule keeps to the settings' microbatches in flight
// and, at these cuts, to the memory.
func (p *Planner) Fits(t cost.Table, cuts partition.Partition, s schedule.Schedule) bool {
	peaks := s.Peaks()
	for _, peak := range peaks {
		if p.Adapts() && peak.InFlight > p.most {
			return false
		}
	}
	return p.limit == 0 || slices.Max(p.Bytes(t, cuts, peaks)) <= p.limit
}

// options returns what a list schedule of a step is made for.
func (p *Planner) options(step sim.Step, caps []int) schedule.ListOptions {
	o := schedule.ListOptions{Microbatches: p.Microbatches, InFlight: caps}
	for stage, c := range step.Costs {
		o.Costs = append(o.Costs, c)
		if stage+1 < len(step.Costs) && step.Bytes != nil {
			link := p.Network.Link(p.Mesh.Rank(stage, 0), p.Mesh.Rank(stage+1, 0))
			o.Message = append(o.Message, link.Seconds(step.Bytes[stage]))
		}
	}
	return o
}

// placed returns what virtual stages cost on the ranks of the network.
func (p *Planner) placed(t cost.Table, cuts partition.Partition) []cost.Stage {
	costs := t.Stages(cuts, p.Map)
	for v := range costs {
		costs[v] = costs[v].Scale(p.slow(p.Map.Stage(v)))
	}
	return costs
}

// slowness returns the slowness of virtual stages times that of the network's
// ranks. Nil stands for ones.
func (p *Planner) slowness(list []float64, m partition.Map) []float64 {
	if p.Network.Slow == nil {
		return list
	}
	if list = slices.Clone(list); list == nil {
		list = slices.Repeat([]float64{1}, m.Virtual())
	}
	for v := range list {
		list[v] *= p.slow(m.Stage(v))
	}
	return list
}

// slow returns how many times slower than the costs the network says that a
// stage is: the slowest of its replicas.
func (p *Planner) slow(stage int) float64 {
	factor := 1.0
	for d := range p.Mesh.Replicas {
		if rank := p.Mesh.Rank(stage, d); rank < len(p.Network.Slow) {
			factor = max(factor, p.Network.Slow[rank])
		}
	}
	return factor
}

// Makespan predicts the seconds of a step at some cuts, from the first forward
// to the last backward.
func (p *Planner) Makespan(t cost.Table, cuts partition.Partition) float64 {
	return sim.Run(p.Step(t, cuts, p.Schedule(t, cuts))).Makespan()
}
