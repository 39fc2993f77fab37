// Package dynamic changes the model while it trains: one file for each kind of
// dynamism, each with its decisions and its state. Decisions are the same on
// every rank; state belongs to layers and moves with them.
package dynamic

import (
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/model"
)

// Kind is one kind of dynamism.
type Kind interface {
	// Apply changes the stage's layers before a step, if the step is one that
	// changes the model; nil means it is not. Collective over the stages of a
	// replica. Replicas hold equal weights, so they decide alike without talking.
	Apply(step int, stages *comm.Group, x *model.Exec, s *model.Stage) (*Change, error)
}

// Change says what Apply did, the same on every rank.
type Change struct {
	Kind   string
	Detail map[string]float64
}

// None changes nothing.
type None struct{}

// Apply returns nil.
func (None) Apply(int, *comm.Group, *model.Exec, *model.Stage) (*Change, error) { return nil, nil }

// New returns what the settings let change the model.
func New(c config.Config) Kind {
	if c.Dynamic.Kind != "prune" {
		return None{}
	}
	return Prune{
		Start: c.Prune.Start, Every: c.Prune.Every, Times: c.Prune.Times,
		Initial: c.Prune.Initial, Final: c.Prune.Final,
		Gather: c.Prune.Select == "gather", CSRFrom: c.Prune.CSRFrom,
	}
}
