// Package layout describes which rank has which layers, and the order of the work on them. A layout
// is one value that is decided, sent, recorded, compared and executed as a whole.
package layout

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/piece"
	"dynmo/src/schedule"
)

// Layout is the placement of layers on ranks, and the order of the work on them. Its number of
// stages is the present one: when a world shrinks, the next layout has fewer stages.
type Layout struct {
	Mesh     Mesh                // stage and replica of each rank of the world
	Cuts     partition.Partition // cuts of the chain, over the virtual stages of Map
	Schedule schedule.Schedule   // schedule of a step
	Ranks    []int               // by rank of the mesh: its rank in the launched world; nil: the same rank
	Twice    []int               // ascending: layers that compute their forward twice, if model.recompute plans such layers
	Pieces   piece.Assignment    // which replicas have which pieces of layers
}

// New returns the layout of some cuts and a schedule, with this number of replicas and order of
// ranks.
func New(cuts partition.Partition, s schedule.Schedule, replicas int, order RankOrder) Layout {
	return Layout{Mesh: Mesh{Stages: s.Map.Stages, Replicas: replicas, Order: order}, Cuts: cuts, Schedule: s}
}

// With returns a layout with other cuts and another schedule on the same replicas and with the same
// pieces. If the number of stages is equal it also has the same ranks.
func (l Layout) With(cuts partition.Partition, s schedule.Schedule) Layout {
	next := New(cuts, s, l.Mesh.Replicas, l.Mesh.Order)
	next.Pieces = l.Pieces
	if next.Mesh == l.Mesh {
		next.Ranks = l.Ranks
	}
	return next
}

// Map returns the mapping of virtual stages to stages.
func (l Layout) Map() partition.Map { return l.Schedule.Map }

// Stages returns the number of stages.
func (l Layout) Stages() int { return l.Mesh.Stages }

// Owners returns the stage of every layer.
func (l Layout) Owners() partition.Owners { return l.Map().Owners(l.Cuts) }

// LayersPerStage returns the number of layers of every stage.
func (l Layout) LayersPerStage() []int {
	list := make([]int, l.Stages())
	for _, stage := range l.Owners() {
		list[stage]++
	}
	return list
}

// Loads returns the seconds per microbatch of every stage. costs is by virtual stage.
func (l Layout) Loads(costs []cost.Stage) []float64 {
	loads := make([]float64, l.Stages())
	for v, c := range costs {
		loads[l.Map().Stage(v)] += c.Seconds()
	}
	return loads
}

// Equal reports whether two layouts have the same layers on the same ranks and the same order of
// work.
func (l Layout) Equal(other Layout) bool {
	return l.SameRanks(other) && l.Cuts.Equal(other.Cuts) && l.Schedule.Equal(other.Schedule) && slices.Equal(l.Twice, other.Twice) && l.Pieces.Equal(other.Pieces)
}

// Check returns an error unless a chain of layers can be trained in the layout. It needs a legal
// schedule, a layer on every virtual stage, and a rank for each rank of the mesh.
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

// text is the form of a layout in a file. Order is by stage, in the form of schedule.Lines. It is
// present if the kind and the numbers may not determine the schedule.
type text struct {
	Stages       int                 `json:"stages"`
	Replicas     int                 `json:"replicas"`
	Mesh         RankOrder           `json:"mesh"`
	Cuts         partition.Partition `json:"cuts"` // of virtual stages
	Schedule     schedule.Kind       `json:"schedule"`
	Vee          bool                `json:"vee,omitempty"` // virtual stages are arranged in a V (see partition.Map)
	Microbatches int                 `json:"microbatches"`
	Order        []string            `json:"order,omitempty"`
	Twice        []int               `json:"twice,omitempty"` // layers that compute their forward twice
	Pieces       piece.Assignment    `json:"pieces,omitzero"` // replicas of the pieces of layers; absent: the initial assignment
	Ranks        []int               `json:"ranks,omitempty"` // by rank of the mesh: its rank in the launched world; absent: the same rank
}

// Keys returns a value whose fields are the keys that UnmarshalJSON reads.
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

// Bounds of a step. A file with larger numbers is damaged, and would take too much time and memory.
const (
	mostMicrobatches = 100_000
	mostPasses       = 1 << 22 // microbatches of all virtual stages
	mostRanks        = 1 << 19
)

// UnmarshalJSON reads a layout and makes its schedule. An error names the wrong field.
func (l *Layout) UnmarshalJSON(b []byte) error {
	t := text{Replicas: 1, Mesh: StageMajor} // defaults if the text has no such keys
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
