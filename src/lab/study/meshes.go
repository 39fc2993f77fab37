package study

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

const (
	// mostMeshes is how many meshes Meshes returns.
	mostMeshes = 5
	// mostChunks bounds the chunks on a stage that Meshes tries.
	mostChunks = 8
	// searchers is how many plans Meshes searches at a time.
	searchers = 2
)

// MeshPlan is the best step that was found on a mesh.
type MeshPlan struct {
	Trial
	MeshRow
	from  candidate
	order int // of the candidate
}

// MeshRow describes a MeshPlan.
type MeshRow struct {
	Stages       int                 `json:"stages"`
	Replicas     int                 `json:"replicas"`
	Microbatches int                 `json:"microbatches"`
	Kind         string              `json:"schedule_kind"`
	Schedule     string              `json:"schedule"` // chosen, if the kind is auto
	Chunks       int                 `json:"chunks"`
	Grain        string              `json:"grain"`
	HeadShards   int                 `json:"head_shards"`
	Cuts         partition.Partition `json:"cuts"` // over virtual stages
	Step         float64             `json:"step_seconds"`
	Exposed      float64             `json:"allreduce_seconds"`
	Idle         trace.Idle          `json:"idle_seconds"`
	Bytes        int64               `json:"bytes"`      // of the stage that needs most
	Cause        string              `json:"limited_by"` // what costs most of the step beside the work
	Share        float64             `json:"limit_share"`
	Sets         []string            `json:"set"`       // settings that plan the same step, each table.key=value as --set takes it
	Without      []string            `json:"without"`   // as in Advice
	MadeUp       bool                `json:"estimated"` // the costs are those of finer
}

// LeftOut is a mesh on which no step is planned.
type LeftOut struct {
	Stages   int    `json:"stages"`
	Replicas int    `json:"replicas"`
	Why      string `json:"why"`

	format string // of Why; "" for another error
	least  int64  // number in Why that the mesh would want
}

// The formats of LeftOut.Why. That of memory is first formatted with the limit.
const (
	tooFewLayers    = "more stages than the %d layers of the finest chain"
	otherMultiple   = "the batch is no multiple of replicas times parallel.microbatch_size, %d or more"
	tooLittleMemory = "a stage needs %%d bytes or more beyond balance.memory_limit_bytes = %d"
)

// Meshes plans a step of a batch of sequences on every mesh of the given number of ranks. It
// returns the meshes with the shortest steps, at most five, and the meshes that are left out.
//
// Microbatches keep their size, so each of D replicas has batch / (D · size) of them. A mesh is
// left out if this is no whole number, or if no plan fits the memory. Each mesh is planned with
// schedule.kind = auto, on the present chain and on those of finerChains, whose costs finer makes
// up. In every comparison a plan on made-up costs counts as longer by worthSeconds; the answer is in the
// order of the steps. The best five then try interleaved schedules. A balancer that never moves layers
// is replaced by the exact partition.
//
// A plan is searched only if its lower bound (search.Step.LeastSeconds) is below the steps of
// its own mesh and of the fifth best mesh. The answer is that of a search of all plans.
//
// The error says why no mesh is left. show receives the number of plans done, and of all plans.
func Meshes(t cost.Table, o Options, ranks, batch int, show func(done, total int64)) ([]MeshPlan, []LeftOut, error) {
	s := meshSearch{have: o.Config, show: show}
	o = balanced(o)
	chains := costedChains(t, o.Config)
	var left []LeftOut
	for stages := 1; stages <= ranks; stages++ {
		if ranks%stages != 0 {
			continue
		}
		m := layout.Mesh{Stages: stages, Replicas: ranks / stages, Order: layout.RankOrder(o.Config.Mesh.Order)}
		if out := s.add(m, chains, o, batch); out != nil {
			left = append(left, *out)
		}
	}
	if len(s.list) == 0 {
		return nil, left, errors.New(strings.Join(WhyLeftOut(left, o.Config.Balance.MemoryLimitBytes), "; "))
	}
	return s.search(), left, nil
}

// meshSearch searches for the best meshes.
type meshSearch struct {
	have  config.Config
	list  []candidate
	show  func(done, total int64)
	mutex sync.Mutex // of what follows
	next  int        // candidates before it have been taken
	done  int
	best  map[layout.Mesh]MeshPlan
}

// candidate is a plan that may be searched.
type candidate struct {
	Options
	costs cost.Table
	mesh  layout.Mesh
	least float64 // seconds that the plan takes at least, as weigh has them
}

// add adds the candidates of a mesh. It returns why there are none, else nil.
func (s *meshSearch) add(m layout.Mesh, chains []costedChain, o Options, batch int) *LeftOut {
	out := func(format string, least int64) *LeftOut {
		return &LeftOut{m.Stages, m.Replicas, fmt.Sprintf(format, least), format, least}
	}
	each := m.Replicas * o.Config.Parallel.MicrobatchSize
	if most := chains[len(chains)-1].config.Layers(); most < m.Stages {
		return out(tooFewLayers, int64(most))
	}
	if batch%each != 0 {
		return out(otherMultiple, int64(each))
	}
	added, missing := false, int64(0)
	var failed error
	for _, c := range chains {
		if c.config.Layers() < m.Stages {
			continue
		}
		next := o
		next.Config.Model = c.config.Model
		p := &next.Config.Parallel
		p.Stages, p.Replicas, p.Microbatches = m.Stages, m.Replicas, batch/each
		next.Config.Schedule.Kind = "auto"
		next.Fixed = search.Fixed(next.Config)
		suited := c // to the replicas, which may share out masters and moments
		suited.costs, _ = search.Suit(c.costs, search.Shape(c.config), next.Config)
		least, err := leastSeconds(suited, next)
		if err == nil {
			added = true
			s.list = append(s.list, candidate{next, suited.costs, m, s.weigh(next.Config, least)})
		} else if full, is := errors.AsType[*balance.MemoryError](err); !is {
			failed = err
		} else if missing == 0 || full.Missing < missing {
			missing = full.Missing
		}
	}
	switch {
	case added:
		return nil
	case failed != nil:
		return &LeftOut{m.Stages, m.Replicas, failed.Error(), "", 0}
	}
	return out(fmt.Sprintf(tooLittleMemory, o.Config.Balance.MemoryLimitBytes), missing)
}

// leastSeconds returns seconds that no plan of some options on a chain beats. The error is a
// *balance.MemoryError where no cuts fit the memory.
func leastSeconds(c costedChain, o Options) (float64, error) {
	if err := o.Config.Validate(); err != nil {
		return 0, err
	}
	if is, holds := search.Shape(o.Config), search.Shape(c.config); is != holds {
		return 0, fmt.Errorf("the costs hold for %s, not for %s", holds, is)
	}
	p, err := search.New(o.Config, o.Network, o.Fixed)
	if err != nil {
		return 0, err
	}
	step := p.Step(c.costs, layout.Layout{})
	if o.Config.Balance.MemoryLimitBytes > 0 {
		err = step.CheckMemory()
	}
	return step.LeastSeconds(), err
}

// weigh returns the seconds by which candidates are compared.
func (s *meshSearch) weigh(c config.Config, seconds float64) float64 {
	if c.Model != s.have.Model {
		return seconds / (1 - worthSeconds)
	}
	return seconds
}

// search returns the best meshes, the fastest first.
func (s *meshSearch) search() []MeshPlan {
	slices.SortStableFunc(s.list, func(a, b candidate) int { return cmp.Compare(a.least, b.least) })
	s.best = make(map[layout.Mesh]MeshPlan)
	_ = together(slices.Repeat([]func() error{s.work}, searchers)...) // without errors
	best := s.ranked()
	best = best[:min(mostMeshes, len(best))]
	var all []func() error
	for i := range best {
		all = append(all, func() error { s.interleave(&best[i]); return nil })
	}
	_ = together(all...)
	slices.SortFunc(best, func(a, b MeshPlan) int { return cmp.Or(cmp.Compare(a.Seconds, b.Seconds), s.compare(a, b)) })
	for i := range best {
		best[i].describe(s.have)
	}
	return best
}

// work searches candidates until none is left.
func (s *meshSearch) work() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.next < len(s.list) {
		order := s.next
		c := s.list[order]
		s.next++
		if s.mayWin(c) {
			s.mutex.Unlock()
			list := try(c.costs, []Options{c.Options}, func(int, int) {})
			s.mutex.Lock()
			for _, t := range list {
				next := MeshPlan{Trial: t, from: c, order: order}
				if best, known := s.best[c.mesh]; !known || s.compare(next, best) < 0 {
					s.best[c.mesh] = next
				}
			}
		}
		s.tell()
	}
	return nil
}

// tell tells that one more plan is done. The best meshes count once more, for interleave.
func (s *meshSearch) tell() {
	s.done++
	s.show(int64(s.done), int64(len(s.list)+mostMeshes))
}

// mayWin reports whether a candidate may be the best of its mesh, and its mesh one of the best.
func (s *meshSearch) mayWin(c candidate) bool {
	if best, known := s.best[c.mesh]; known && s.seconds(best) < c.least {
		return false
	}
	ranked := s.ranked()
	return len(ranked) < mostMeshes || c.least <= s.seconds(ranked[mostMeshes-1])
}

// ranked returns the best plans of the meshes, the fastest first.
func (s *meshSearch) ranked() []MeshPlan {
	return slices.SortedFunc(maps.Values(s.best), s.compare)
}

// seconds returns the seconds of a plan as weigh has them.
func (s *meshSearch) seconds(p MeshPlan) float64 { return s.weigh(p.Config, p.Seconds) }

// compare puts the faster of two plans first. Of equals it puts the one first whose candidate
// comes first.
func (s *meshSearch) compare(a, b MeshPlan) int {
	return cmp.Or(cmp.Compare(s.seconds(a), s.seconds(b)), cmp.Compare(a.order, b.order))
}

// interleave gives a plan an interleaved schedule if that takes less time.
func (s *meshSearch) interleave(best *MeshPlan) {
	for _, kind := range []schedule.Kind{schedule.KindInterleaved, schedule.KindZBInterleaved} {
		for chunks := 2; chunks <= mostChunks; chunks *= 2 {
			o := best.from.Options
			o.Config.Schedule.Kind, o.Config.Schedule.Chunks = string(kind), chunks
			if least, err := leastSeconds(costedChain{best.Config, best.from.costs}, o); err != nil || least >= best.Seconds {
				continue
			}
			for _, t := range try(best.from.costs, []Options{o}, func(int, int) {}) {
				if t.Seconds < best.Seconds {
					best.Trial = t
				}
			}
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tell()
}

// describe says which settings make the plan, and what costs most of its step.
func (p *MeshPlan) describe(have config.Config) {
	c := p.Config
	var sets []string
	set := func(key string, value any) { sets = append(sets, fmt.Sprintf("%s=%v", key, value)) }
	set("parallel.stages", c.Parallel.Stages)
	set("parallel.replicas", c.Parallel.Replicas)
	set("parallel.microbatches", c.Parallel.Microbatches)
	set("schedule.kind", c.Schedule.Kind)
	if c.Schedule.Virtual() > 1 {
		set("schedule.chunks", c.Schedule.Chunks)
	}
	set("model.grain", c.Model.Grain)
	if c.Model.HeadShards != have.Model.HeadShards {
		set("model.head_shards", c.Model.HeadShards)
	}
	if c.Balance.Kind != have.Balance.Kind {
		set("balance.kind", c.Balance.Kind)
	}
	p.MeshRow = MeshRow{
		Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Microbatches: c.Parallel.Microbatches,
		Kind: c.Schedule.Kind, Schedule: string(p.Plan.Schedule.Kind), Chunks: p.Map().Chunks, Grain: c.Model.Grain, HeadShards: c.Model.HeadShards,
		Cuts: p.Plan.Cuts, Step: p.Seconds, Exposed: p.Plan.Exposed, Idle: p.Plan.Idle, Bytes: slices.Max(p.Plan.Bytes),
		Sets: sets, MadeUp: c.Model != have.Model,
	}
	heaviest := slices.MaxFunc(p.from.costs.Layers, func(a, b cost.Layer) int { return cmp.Compare(a.Seconds(), b.Seconds()) })
	uneven := "uneven stages"
	if p.Bottleneck < 1.05*heaviest.Seconds() {
		uneven = "layer " + heaviest.Name
	}
	for _, x := range []struct {
		cause   string
		seconds float64
	}{
		{"bubble", p.Idle.Inherent}, {uneven, p.Idle.Imbalance}, {"memory", p.Idle.Memory},
		{"messages", p.Idle.Communication}, {"gradient sums", p.Exposed},
	} {
		if share := x.seconds / p.Seconds; p.Cause == "" || share > p.Share {
			p.Cause, p.Share = x.cause, share
		}
	}
}

// WhyLeftOut says in words why meshes are left out, each reason with the meshes that it has.
func WhyLeftOut(left []LeftOut, limit int64) []string {
	var reasons []string
	for _, format := range []string{tooFewLayers, otherMultiple, fmt.Sprintf(tooLittleMemory, limit)} {
		var names []string
		least := int64(math.MaxInt64)
		for _, l := range left {
			if l.format == format {
				names, least = append(names, l.name()), min(least, l.least)
			}
		}
		if names != nil {
			reasons = append(reasons, strings.Join(names, ", ")+": "+fmt.Sprintf(format, least))
		}
	}
	for _, l := range left {
		if l.format == "" {
			reasons = append(reasons, l.name()+": "+l.Why)
		}
	}
	return reasons
}

func (l LeftOut) name() string { return fmt.Sprintf("%dx%d", l.Stages, l.Replicas) }
