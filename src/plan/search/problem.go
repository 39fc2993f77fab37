package search

import (
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Problem is everything that is the same in all steps on one number of stages and of microbatches: the
// settings, the network, the allowed maps and the memory of a stage besides its layers. In: New's
// arguments. Out: a Step for each table of costs. A Problem never changes after New. Without a Memo it
// keeps no answers and is for any number of goroutines.
type Problem struct {
	Config       config.Config
	Network      sim.Network
	Kind         schedule.Kind
	Microbatches int
	Mesh         layout.Mesh
	By           balance.By      // load of a layer that is balanced: seconds or parameters (balance.by)
	Maps         []partition.Map // allowed: that of the settings first; a second one where costs decide (see canFold)

	Memo *Memo // predictions that are kept; nil: a Step keeps its own

	forms         []form // of Maps
	limit         int64  // bytes of a rank; 0: no limit
	sums          schedule.Sums
	rounds        *sim.Rounds  // of sums, on the first ranks of the launched world
	sumsGradients bool         // stages need memory to sum gradients over replicas
	fixed         FixedBytes   // as given; nil: none
	beside        FixedBytes   // fixed, or no bytes
	twice         []cost.Bytes // by layer that may compute its forward twice, where that is planned; nil: nothing is planned
}

// form is an allowed map with the facts that follow from the map and the numbers alone.
type form struct {
	partition.Map
	// base is the schedule itself, where it follows from numbers alone. For list and auto
	// it is the schedule before costs are known. Cuts must fit the memory under base; what
	// memory is left allows more microbatches in flight.
	base  schedule.Schedule
	peaks []schedule.Peak // of base, by virtual stage
	most  int             // microbatches of a stage's chunks that settings allow in flight, where the schedule follows from costs
}

// New returns the problem of settings on a network. fixed returns the bytes of a stage besides its
// layers (see Fixed); nil: layers are all that stages hold. The error says that stages and
// microbatches do not allow the schedule, or that the schedule's file is not legal.
func New(c config.Config, network sim.Network, fixed FixedBytes) (*Problem, error) {
	p := &Problem{
		Config: c, Network: network, Kind: schedule.Kind(c.Schedule.Kind), Microbatches: c.Parallel.Microbatches,
		Mesh: layout.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: layout.RankOrder(c.Mesh.Order)},
		By:   balance.By(c.Balance.By), sums: schedule.SumsOf(c), limit: c.Balance.MemoryLimitBytes, fixed: fixed, beside: fixed,
	}
	p.rounds = sim.NewRounds(network, p.Mesh, nil, p.sums)
	if p.sumsGradients = fixed != nil && p.Mesh.Replicas > 1; fixed == nil {
		p.beside = func(partition.Map, int, schedule.Peak) cost.Memory { return cost.Memory{} }
	}
	if err := p.addForm(c.Schedule.Virtual()); err != nil {
		return nil, err
	}
	if canFold(c) {
		_ = p.addForm(2) // where there is no V, the settings' map stays alone
	}
	if c.Model.Recompute == "plan" {
		c.Model.Recompute = "block"
		for _, l := range Dense(c).Layers {
			p.twice = append(p.twice, l.Bytes)
		}
	}
	return p, nil
}

// addForm adds the form of a number of chunks on a stage, for kinds that have a choice.
func (p *Problem) addForm(chunks int) (err error) {
	f, stages := form{}, p.Mesh.Stages
	switch p.Kind {
	case schedule.KindFile:
		f.base, err = readSchedule(p.Config)
	case schedule.KindList, schedule.KindAuto:
		f.most = p.Config.Schedule.InFlight
		if f.most == 0 {
			f.most = 2*stages - 1
		}
		f.most = chunks * min(f.most, p.Microbatches)
		f.base, err = initialSchedule(stages, chunks, p.Microbatches, f.most)
	default:
		f.base, err = schedule.New(p.Kind, stages, chunks, p.Microbatches)
		if p.Kind == schedule.KindZBV && err == nil {
			f.most = f.base.Cap(0)
		}
	}
	if err != nil {
		return err
	}
	if n := f.base.Map.Chunks * p.Microbatches; n > comm.TagMicrobatches && !f.base.Ascending() {
		return fmt.Errorf("parallel.microbatches = %d, schedule.kind = %q: wanted at most %d microbatches of all chunks of a stage", p.Microbatches, p.Kind, comm.TagMicrobatches)
	}
	f.Map, f.peaks = f.base.Map, f.base.Peaks()
	p.Maps, p.forms = append(p.Maps, f.Map), append(p.forms, f)
	return nil
}

// canFold reports whether costs decide if a stage holds one chunk of the chain or two in a V.
// The schedule must follow from costs, and layers must be free to move anywhere: a V has
// other layers on nearly every stage. Diffusion moves layers to neighbours only.
func canFold(c config.Config) bool {
	kind := schedule.Kind(c.Schedule.Kind)
	return (kind == schedule.KindAuto || kind == schedule.KindList) &&
		c.Balance.Kind == "partition" && balance.By(c.Balance.By) == balance.ByTime &&
		c.Parallel.Stages > 1 && c.Layers() >= 2*c.Parallel.Stages
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

// Configured returns New with the network of the settings and with Fixed.
func Configured(c config.Config) (*Problem, error) {
	return New(c, sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes), Fixed(c))
}

// Resize returns the problem of the same settings for another number of stages and of microbatches.
// The sequences of a step stay the same: with fewer microbatches each is larger. The error says which
// number is not possible.
func (p *Problem) Resize(stages, microbatches int) (*Problem, error) {
	if stages == p.Mesh.Stages && microbatches == p.Microbatches {
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
	next, err := New(c, p.Network, fixed)
	if err == nil {
		next.Memo = p.Memo
	}
	return next, err
}

// Match is Resize for the stages and microbatches of a layout.
func (p *Problem) Match(l layout.Layout) (*Problem, error) {
	return p.Resize(l.Stages(), l.Schedule.Microbatches)
}

// form returns the allowed form of a number of virtual stages, or of the settings if there is none.
func (p *Problem) form(virtual int) *form {
	for i := range p.forms {
		if f := &p.forms[i]; f.Virtual() == virtual {
			return f
		}
	}
	return &p.forms[0]
}

// peaks returns the peaks of a layout's schedule, which are known of the base.
func (p *Problem) peaks(l layout.Layout) []schedule.Peak {
	if f := p.form(l.Map().Virtual()); l.Schedule.Equal(f.base) {
		return f.peaks
	}
	return l.Schedule.Peaks()
}

// Accepts returns an error unless layout l fits the problem: l must be valid, with the same stages,
// replicas and microbatches, an allowed map and the given ranks. It does not check that the cuts and
// the schedule are the ones that a search would find.
func (p *Problem) Accepts(l layout.Layout, ranks []int) error {
	if err := l.Check(p.Config.Layers()); err != nil {
		return err
	}
	m := p.form(l.Map().Virtual()).Map
	if l.Mesh != p.Mesh || l.Map() != m || l.Schedule.Microbatches != p.Microbatches {
		return fmt.Errorf("%d stages of %d chunks, %d replicas and %d microbatches, want %d of %d, %d and %d", l.Stages(), l.Map().Chunks,
			l.Mesh.Replicas, l.Schedule.Microbatches, p.Mesh.Stages, m.Chunks, p.Mesh.Replicas, p.Microbatches)
	}
	if !l.SameRanks(layout.Layout{Mesh: p.Mesh, Ranks: ranks}) {
		return fmt.Errorf("ranks %v, want %v", l.Ranks, ranks)
	}
	return nil
}

// Adapts reports whether the schedule depends on costs: of kinds list, auto and zb-v. The schedules of
// other kinds are the same for all costs.
func (p *Problem) Adapts() bool {
	return p.Kind == schedule.KindList || p.Kind == schedule.KindAuto || p.Kind == schedule.KindZBV
}
