package config

import (
	"slices"
	"strings"
)

// Kind is a kind of dynamism as settings see it. Its functions are called where dynamic.kind names
// the kind; Check is always called.
type Kind struct {
	Name       string // in dynamic.kind
	Structural bool   // the kind is part of the chain from the first step on; others change layers between steps
	Subset     bool   // blocks of the kind work on some tokens of a sequence
	Tables     []Table

	Check          func(Config, Rule)                               // combinations that no run can have, whatever dynamic.kind is
	Remarks        func(Config) []string                            // what works otherwise than one may think, a sentence each
	Shape          func(Config, *Shape)                             // changes the shape of blocks and chain
	ReplicasDiffer func(Config) bool                                // replicas of a stage hold different weights
	Resolve        func(c *Config, recorded string) (string, error) // see Config.Resolve
	Assume         func(*Config)                                    // sets what Assumptions says in place of "auto"
}

// Rule refuses a combination of settings where it is wrong, and says what is wanted. names
// are those of the settings, with blanks between them.
type Rule func(wrong bool, wanted, names string)

// Shape is what families and kinds of dynamism change of blocks and chain.
type Shape struct {
	Keyed       int     // heads that have keys and values
	Inside      int     // channels inside an MLP
	Matrices    int     // matrices of an MLP
	MLPs, Taken int     // MLPs of a block; those of them that a token goes through
	Router      float64 // weights that choose them
	PerBlock    int     // layers of a block
	Whole       int     // blocks that are one layer in any grain
	Added       int     // layers beside blocks, embedding and head
}

// kinds are all that are registered, in their fixed order.
var kinds []Kind

// kindNames are the values of dynamic.kind, with commas between them.
var kindNames = "none"

// RegisterKind adds a kind of dynamism and its tables, behind those that are registered. It is
// called before there is any Config.
func RegisterKind(k Kind) {
	kinds, kindNames = append(kinds, k), kindNames+","+k.Name
	for _, t := range k.Tables {
		registerTable(t)
	}
}

// Kinds returns the kinds of the settings, "none" for none.
func (d Dynamic) Kinds() []string { return strings.Split(d.Kind, "+") }

// Has reports whether a kind is among those of the settings.
func (d Dynamic) Has(kind string) bool { return slices.Contains(d.Kinds(), kind) }

// active returns the kinds that the settings name, in the fixed order.
func (d Dynamic) active() []Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !d.Has(k.Name) })
}

// Structure returns those of the kinds that are part of the chain, as the settings have
// them; "none" for none.
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

// TakesSubsets reports whether a kind lets blocks work on some tokens of a sequence.
func (d Dynamic) TakesSubsets() bool {
	return slices.ContainsFunc(d.active(), func(k Kind) bool { return k.Subset })
}

// ReplicasDiffer reports whether replicas of a stage hold different weights.
func (c Config) ReplicasDiffer() bool {
	return slices.ContainsFunc(c.Dynamic.active(), func(k Kind) bool { return k.ReplicasDiffer != nil && k.ReplicasDiffer(c) })
}

// Resolve sets what a run decides once and keeps: settings say it from then on. recorded is
// the file of settings of a run that goes on, which need not be there; "" of a run that
// begins. Sentences say why.
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

// shape returns blocks and chain with all that the family and kinds change of them.
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

// Keyed returns how many heads have keys and values.
func (c Config) Keyed() int { return c.shape().Keyed }

// Inside returns the channels inside an MLP of a block: where there are several, of each.
func (c Config) Inside() int { return c.shape().Inside }

// Matrices returns the weights of a block's matrices that a token is multiplied with: in
// attention, and in the MLPs that it goes through, with what chooses them.
func (c Config) Matrices() (attention, mlp float64) { return c.matrices(c.shape().Taken) }

// matrices is Matrices of a token that goes through the given number of MLPs.
func (c Config) matrices(mlps int) (attention, mlp float64) {
	s, hidden := c.shape(), float64(c.Model.Hidden)
	attention = 2 * hidden * hidden * (1 + float64(s.Keyed)/float64(c.Model.Heads))
	return attention, float64(mlps*s.Matrices)*hidden*float64(s.Inside) + s.Router
}
