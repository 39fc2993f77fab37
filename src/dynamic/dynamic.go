// Package dynamic is the contract of kinds of dynamism, which change the model while it
// trains, and how several kinds act together. A kind is a folder of src/kind. Its decisions
// are the same on every rank. Its state belongs to layers and moves with them.
package dynamic

import (
	"maps"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/model"
)

// Kind is one kind of dynamism.
type Kind interface {
	// Before changes the stage's layers before a step, if the step is one that
	// changes the model. Collective over the stages of a replica. Replicas hold equal
	// weights, so they decide alike without talking.
	Before(step int, t Target) (Change, error)
	// After is given what all layers counted in a step, the same on every rank, ascending by
	// layer and name. It exchanges no messages, and its effect is the same on every rank.
	After(step int, counts []cost.CountSum) error
}

// Target is everything that a kind of dynamism may touch.
type Target struct {
	Stages *comm.Group // of this replica
	Exec   *model.Exec
	Stage  *model.Stage
	LR     float64 // learning rate of the step
	// Updated waits for weights of the last update that are on their way from other replicas;
	// nil: there are none.
	Updated func() error
}

// Settle waits until all weights of this stage are those of the last update. A kind calls it
// before it reads weights or changes the structure of layers, also in After.
func (t Target) Settle() error {
	if t.Updated == nil {
		return nil
	}
	return t.Updated()
}

// Change is the effect of Before, the same on every rank. Without a Kind there is
// none.
type Change struct {
	Kind      string
	Structure bool // formats of layers, or which are trained: the pipeline's runner must be made again
	Costs     bool // passes that layers still make cost something else
	Detail    map[string]float64
}

// New returns the kinds of dynamism that the settings name, as one that does what each
// does, in their order. It panics on a name that is not registered, which the settings
// refuse.
func New(c config.Config) Kind {
	var list several
	for _, name := range c.Dynamic.Kinds() {
		if name == "none" {
			continue
		}
		if construct := find(name).New; construct != nil {
			list = append(list, construct(c))
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// several are kinds of dynamism beside each other.
type several []Kind

// Before returns what all have changed.
func (s several) Before(step int, t Target) (Change, error) {
	var all Change
	for _, k := range s {
		c, err := k.Before(step, t)
		if err != nil {
			return all, err
		}
		all = all.with(c)
	}
	return all, nil
}

func (s several) After(step int, counts []cost.CountSum) error {
	for _, k := range s {
		if err := k.After(step, counts); err != nil {
			return err
		}
	}
	return nil
}

// with returns what two kinds have changed together.
func (c Change) with(d Change) Change {
	if c.Kind == "" {
		return d
	}
	if d.Kind != "" {
		c.Kind += "+" + d.Kind
	}
	c.Structure, c.Costs = c.Structure || d.Structure, c.Costs || d.Costs
	detail := make(map[string]float64)
	maps.Copy(detail, c.Detail)
	maps.Copy(detail, d.Detail)
	c.Detail = detail
	return c
}

// Nothing is a Kind that changes nothing between steps.
type Nothing struct{ Unmeasured }

// Before changes nothing.
func (Nothing) Before(int, Target) (Change, error) { return Change{}, nil }

// Unmeasured is embedded by kinds that do not depend on measurements.
type Unmeasured struct{}

// After does nothing.
func (Unmeasured) After(int, []cost.CountSum) error { return nil }

// lately is the most steps that a mean is about: those of one are noise.
const lately = 16

// Mean is about the mean of the last values.
type Mean struct{ Value, steps float64 }

// Add adds a value.
func (m *Mean) Add(x float64) {
	m.steps = min(m.steps+1, lately)
	m.Value += (x - m.Value) / m.steps
}

// news is the factor by which a share must change to be reported again.
const news = 1.25

// IsNews reports whether a share differs from the last reported one by more than news.
func IsNews(told, share float64) bool { return share > told*news || told > share*news }
