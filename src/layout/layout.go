// Package layout says where every layer is and in which order it is worked on.
// A layout is one value, which is decided, passed on, recorded, compared and
// executed as a whole.
package layout

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// Layout is where layers are and in which order they are worked on. Its number
// of stages is the one that counts: a world that shrinks is the next layout.
type Layout struct {
	Mesh     mesh.Mesh           // which stage and replica a rank of the world is
	Cuts     partition.Partition // of the chain, over the virtual stages of Map
	Schedule schedule.Schedule   // of a step
	Ranks    []int               // by rank of the mesh: the rank of the launched world that it is; nil: the same
	Twice    []int               // ascending: the layers that compute their forward twice, where model.recompute plans that
	Pieces   string              // which replicas hold which pieces of layers, in the words of the kind that shares them out; "": as at first
}

// New returns the layout of some cuts and a schedule on replicas in an order.
func New(cuts partition.Partition, s schedule.Schedule, replicas int, order mesh.Order) Layout {
	return Layout{Mesh: mesh.Mesh{Stages: s.Map.Stages, Replicas: replicas, Order: order}, Cuts: cuts, Schedule: s}
}

// With returns other cuts and another schedule on the same replicas, with the same pieces, and the
// same ranks where there are as many stages.
func (l Layout) With(cuts partition.Partition, s schedule.Schedule) Layout {
	next := New(cuts, s, l.Mesh.Replicas, l.Mesh.Order)
	next.Pieces = l.Pieces
	if next.Mesh == l.Mesh {
		next.Ranks = l.Ranks
	}
	return next
}

// Map says which stage holds which virtual stage.
func (l Layout) Map() partition.Map { return l.Schedule.Map }

// Stages returns the number of stages.
func (l Layout) Stages() int { return l.Mesh.Stages }

// Owners returns the stage of every layer.
func (l Layout) Owners() partition.Owners { return l.Map().Owners(l.Cuts) }

// LayersPerStage returns how many layers every stage holds.
func (l Layout) LayersPerStage() []int {
	list := make([]int, l.Stages())
	for _, stage := range l.Owners() {
		list[stage]++
	}
	return list
}

// Loads returns the seconds per microbatch of every stage: costs are by virtual
// stage.
func (l Layout) Loads(costs []cost.Stage) []float64 {
	loads := make([]float64, l.Stages())
	for v, c := range costs {
		loads[l.Map().Stage(v)] += c.Seconds()
	}
	return loads
}

// Equal reports whether two layouts hold the same layers on the same ranks and
// work on them in the same order.
func (l Layout) Equal(other Layout) bool {
	return l.SameRanks(other) && l.Cuts.Equal(other.Cuts) && l.Schedule.Equal(other.Schedule) && slices.Equal(l.Twice, other.Twice) && l.Pieces == other.Pieces
}

// Check returns an error unless the layout is one that a chain of layers can be
// trained in: a legal schedule, a layer on every virtual stage, and a rank for each rank of
// the mesh.
func (l Layout) Check(layers int) error {
	if l.Mesh.Replicas < 1 || l.Mesh.Stages != l.Map().Stages {
		return fmt.Errorf("layout: mesh of %d stages and %d replicas, the schedule has %d stages", l.Mesh.Stages, l.Mesh.Replicas, l.Map().Stages)
	}
	if err := l.checkRanks(); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	if err := l.Cuts.Check(layers, l.Map().Virtual(), true); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	return l.Schedule.Check(l.Schedule.Cap)
}

// text is a layout in a file. Order is by stage, as schedule.Lines writes it; it
// is there where the schedule may not follow from its kind and the numbers.
type text struct {
	Stages       int                 `json:"stages"`
	Replicas     int                 `json:"replicas"`
	Mesh         mesh.Order          `json:"mesh"`
	Cuts         partition.Partition `json:"cuts"` // of virtual stages
	Schedule     schedule.Kind       `json:"schedule"`
	Vee          bool                `json:"vee,omitempty"` // virtual stages lie in a V (see partition.Map)
	Microbatches int                 `json:"microbatches"`
	Order        []string            `json:"order,omitempty"`
	Twice        []int               `json:"twice,omitempty"`  // layers that compute their forward twice
	Pieces       string              `json:"pieces,omitempty"` // of layers: on which replicas; none: as at first
	Ranks        []int               `json:"ranks,omitempty"`  // of the launched world, by rank of the mesh; none: the same
}

// Keys returns a value with the keys that UnmarshalJSON reads.
func (Layout) Keys() []any { return []any{text{}} }

// MarshalJSON writes the layout.
func (l Layout) MarshalJSON() ([]byte, error) {
	t := text{
		l.Mesh.Stages, l.Mesh.Replicas, l.Mesh.Order, l.Cuts,
		l.Schedule.Kind, l.Map().Vee, l.Schedule.Microbatches, nil, l.Twice, l.Pieces, l.Ranks,
	}
	if k := l.Schedule.Kind; k == schedule.KindList || k == schedule.KindFile || k == schedule.KindZBV {
		t.Order = l.Schedule.Lines()
	}
	return json.Marshal(t)
}

// Bounds of a step: a file that says more is damaged, and would cost time and
// memory.
const (
	mostMicrobatches = 100_000
	mostPasses       = 1 << 22 // microbatches of all virtual stages
	mostRanks        = 1 << 19
)

// UnmarshalJSON reads a layout and makes its schedule. The error names the field
// that is wrong.
func (l *Layout) UnmarshalJSON(b []byte) error {
	t := text{Replicas: 1, Mesh: mesh.StageMajor} // unless the text has others
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	virtual := t.Cuts.Stages()
	switch {
	case virtual < 1:
		return fmt.Errorf("cuts: none")
	case t.Stages < 1 || virtual%t.Stages != 0:
		return fmt.Errorf("stages: %d, want a divisor of the %d virtual stages of cuts", t.Stages, virtual)
	case t.Replicas < 1 || t.Replicas > mostRanks/t.Stages:
		return fmt.Errorf("replicas: %d, want at least 1 and at most %d ranks in all", t.Replicas, mostRanks)
	case t.Microbatches < 1 || t.Microbatches > mostMicrobatches:
		return fmt.Errorf("microbatches: %d, want 1 to %d", t.Microbatches, mostMicrobatches)
	case t.Microbatches > mostPasses/virtual:
		return fmt.Errorf("microbatches: %d on %d virtual stages, want at most %d on all together", t.Microbatches, virtual, mostPasses)
	}
	if err := t.Cuts.Check(t.Cuts.Layers(), virtual, false); err != nil {
		return fmt.Errorf("cuts: %w", err)
	}
	var s schedule.Schedule
	var err error
	if chunks := virtual / t.Stages; t.Order != nil {
		s, err = schedule.Parse(t.Schedule, partition.Map{Stages: t.Stages, Chunks: chunks, Vee: t.Vee}, t.Microbatches, t.Order)
	} else {
		s, err = schedule.New(t.Schedule, t.Stages, chunks, t.Microbatches)
	}
	if err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	read := New(t.Cuts, s, t.Replicas, t.Mesh)
	if read.Ranks = t.Ranks; len(t.Ranks) == 0 {
		read.Ranks = nil
	}
	if err := read.checkRanks(); err != nil {
		return err
	}
	read.Twice, read.Pieces = t.Twice, t.Pieces
	for i, layer := range t.Twice {
		if layer < 0 || layer >= t.Cuts.Layers() || i > 0 && layer <= t.Twice[i-1] {
			return fmt.Errorf("twice: %v, want ascending numbers of the %d layers", t.Twice, t.Cuts.Layers())
		}
	}
	*l = read
	return nil
}
