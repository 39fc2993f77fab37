package train

import (
	"encoding/json"
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/layout"
	"dynmo/src/profile"
)

// conclusion is the message that the root sends to all ranks after a step. The root is the first
// stage of the first replica. Without a Move the next step runs in the present layout.
type conclusion struct {
	Shared []byte      `json:"shared,omitempty"` // see profile.Profiler.Share
	Move   *relocation `json:"move,omitempty"`
	Failed string      `json:"failed,omitempty"` // error of the decision; "": none
}

// relocation is the part of a decided move of layers that every rank needs.
type relocation struct {
	Next   layout.Layout `json:"next"`
	Behind bool          `json:"behind"` // masters and moments may follow while the next step computes
	Own    []int         `json:"own"`    // layers in which every replica has parameters of its own
	Bytes  []int64       `json:"bytes"`  // that each stage of the next layout needs, if ranks change
}

// decide asks the balancer on the root for the layout of the next step. All ranks then receive the
// answer and the results of the step: down a tree over the stages of the first replica, then down a
// tree over the replicas of each stage. Collective over the present world.
func (r *Rank) decide(t *turn) error {
	var c conclusion
	var text []byte
	var err error
	t.deciding = r.now()
	if r.world.All.Rank() == 0 {
		text, err = json.Marshal(r.conclude(t))
	}
	if err == nil && r.world.Replicas.Rank() == 0 {
		text, err = r.neighbours.Conclude(text)
	}
	if err == nil {
		text, err = r.world.Replicas.Bcast(0, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return fmt.Errorf("decision: %w", err)
	}
	if c.Failed != "" {
		return comm.Shared(errors.New(c.Failed))
	}
	if t.next, t.relocation = r.layout, c.Move; c.Move != nil {
		t.next = c.Move.Next
	}
	if err := r.dynamism.After(t.step, r.profiler.Take(c.Shared)); err != nil {
		return fmt.Errorf("dynamic: %w", err)
	}
	return nil
}

// conclude makes the decision on the root. After the last step, or a step that ends the run, the
// layout stays.
func (r *Rank) conclude(t *turn) conclusion {
	c := conclusion{Shared: r.profiler.Share(t.measured)}
	if t.step+1 == r.Config.Train.Steps || t.diverged != nil {
		return c
	}
	next, why, err := r.Balancer.Decide(t.measured, r.layout)
	if t.why = why; err == nil && !next.Equal(r.layout) {
		c.Move, err = r.relocation(t.measured, next)
	}
	if err != nil {
		c.Failed = err.Error()
	}
	return c
}

// relocation returns the part of a move to layout next that every rank needs.
func (r *Rank) relocation(m profile.Measurement, next layout.Layout) (*relocation, error) {
	problem, err := r.problem.Match(next)
	if err != nil {
		return nil, err
	}
	to := &relocation{Next: next, Behind: problem.Step(m.Table, r.layout).OptimizerCanFollow(next)}
	for l, layer := range m.Layers {
		if layer.Bytes.Own > 0 || r.stage.Config.Shards > 0 {
			to.Own = append(to.Own, l)
		}
	}
	if !next.SameRanks(r.layout) {
		to.Bytes = problem.Step(m.Table, next).Bytes(next)
	}
	return to, nil
}
