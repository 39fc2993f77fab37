package config

import (
	"slices"
	"strings"
)

// Kind is the settings of a kind of dynamism. Its functions are called if dynamic.kind names the
// kind; Check is always called.
type Kind struct {
	Name       string // a value of dynamic.kind
	Structural bool   // the kind is part of the chain from the first step on; others change layers between steps
	Subset     bool   // blocks of the kind work on only some tokens of a sequence
	Tables     []Table

	Check          func(Config, Rule)                               // combinations that are errors, for any dynamic.kind
	Remarks        func(Config) []string                            // sentences about settings that act differently than expected
	Shape          func(Config, *Shape)                             // changes the shape of blocks and chain
	ReplicasDiffer func(Config) bool                                // reports whether replicas of a stage have different weights
	Resolve        func(c *Config, recorded string) (string, error) // see Config.Resolve
	Assume         func(*Config)                                    // replaces "auto" by the values that Assumptions reports
}

// Rule adds an error if a combination of settings is wrong. wanted describes valid settings. names
// are the settings, separated by blanks.
type Rule func(wrong bool, wanted, names string)

// Shape is the shape of blocks and chain, which families and kinds of dynamism may change.
type Shape struct {
	Keyed       int     // number of heads with keys and values
	Inside      int     // channels inside an MLP
	Matrices    int     // number of matrices in an MLP
	MLPs, Taken int     // number of MLPs in a block, and of those that process a token
	Router      float64 // number of weights that choose the MLPs
	PerBlock    int     // layers of a block
	Whole       int     // number of blocks that are always one layer
	Added       int     // number of layers other than blocks, embedding and head
}

// kinds are the registered kinds, in a fixed order.
var kinds []Kind

// kindNames are the values of dynamic.kind, separated by commas.
var kindNames = "none"

// RegisterKind adds a kind of dynamism and its tables after the registered ones. It must be called
// before a Config is made.
func RegisterKind(k Kind) {
	kinds, kindNames = append(kinds, k), kindNames+","+k.Name
	for _, t := range k.Tables {
		registerTable(t)
	}
}

// Kinds returns the kinds in the settings, "none" for none.
func (d Dynamic) Kinds() []string { return strings.Split(d.Kind, "+") }

// Has reports whether the settings name a kind.
func (d Dynamic) Has(kind string) bool { return slices.Contains(d.Kinds(), kind) }

// active returns the kinds in the settings, in the fixed order.
func (d Dynamic) active() []Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !d.Has(k.Name) })
}

// Structure returns the kinds in the settings that are part of the chain; "none" for none.
func (d Dynamic) Structure() string {
	list := slices.DeleteFunc(d.Kinds(), func(name string) bool {
		return !slices.ContainsFunc(kinds, func(k Kind) bool { return k.Name == name && k.Structural })
	})
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "+")
}

// ChangesLayers reports whether a kind changes layers between steps.
func (d Dynamic) ChangesLayers() bool {
	return slices.ContainsFunc(d.active(), func(k Kind) bool { return !k.Structural })
}

// TakesSubsets reports whether blocks work on only some tokens of a sequence.
func (d Dynamic) TakesSubsets() bool {
	return slices.ContainsFunc(d.active(), func(k Kind) bool { return k.Subset })
}

// ReplicasDiffer reports whether replicas of a stage have different weights.
func (c Config) ReplicasDiffer() bool {
	return slices.ContainsFunc(c.Dynamic.active(), func(k Kind) bool { return k.ReplicasDiffer != nil && k.ReplicasDiffer(c) })
}

// Resolve makes the decisions that a run makes once and keeps, and stores them in the settings.
// recorded is the settings file of a run that resumes, which may be missing; "" for a new run. why
// has a sentence for each decision.
func (c *Config) Resolve(recorded string) (why []string, err error) {
	for _, k := range c.Dynamic.active() {
		if k.Resolve == nil {
			continue
		}
		sentence, err := k.Resolve(c, recorded)
		if err != nil {
			return nil, err
		}
		if sentence != "" {
			why = append(why, sentence)
		}
	}
	return why, nil
}

// shape returns the shape of blocks and chain after the changes of the family and the kinds.
func (c Config) shape() Shape {
	s := Shape{Keyed: c.Model.Heads, Inside: 4 * c.Model.Hidden, Matrices: 2, MLPs: 1, Taken: 1, PerBlock: 1}
	if f := c.family(); f.Shape != nil {
		f.Shape(c, &s)
	}
	if c.Model.Grain == "half" {
		s.PerBlock = 2
	}
	for _, k := range c.Dynamic.active() {
		if k.Shape != nil {
			k.Shape(c, &s)
		}
	}
	return s
}

// Keyed returns the number of heads with keys and values.
func (c Config) Keyed() int { return c.shape().Keyed }

// Inside returns the channels inside one MLP of a block.
func (c Config) Inside() int { return c.shape().Inside }

// Matrices returns the number of weights in a block's matrices that multiply a token: in attention,
// and in the MLPs that process the token, with the weights that choose those MLPs.
func (c Config) Matrices() (attention, mlp float64) { return c.matrices(c.shape().Taken) }

// matrices is Matrices for a token that this number of MLPs process.
func (c Config) matrices(mlps int) (attention, mlp float64) {
	s, hidden := c.shape(), float64(c.Model.Hidden)
	attention = 2 * hidden * hidden * (1 + float64(s.Keyed)/float64(c.Model.Heads))
	return attention, float64(mlps*s.Matrices)*hidden*float64(s.Inside) + s.Router
}
