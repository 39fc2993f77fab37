package model

import (
	"fmt"
	"slices"

	"dynmo/src/device"
	"dynmo/src/piece"
	"dynmo/src/tensor"
)

// Whole returns the Config of a replica that has all parameters, masters and moments.
func (c Config) Whole() Config {
	c.Shards = 0
	return c.AsReplica(0, 0)
}

// AsReplica returns the Config with another Replica and another Spread: the model as `replica` of
// `replicas` has it. If replicas is 0, every replica has all pieces.
func (c Config) AsReplica(replica, replicas int) Config {
	if replicas != c.Spread {
		c.Pieces = piece.Assignment{} // says nothing of other replicas
	}
	c.Replica, c.Spread = replica, replicas
	if replicas == 0 && c.Shards == 0 {
		c.Replica = 0
	}
	return c
}

// Supplies reports whether the replica of c owns a parameter of a layer that the replica of other
// holds too, owned or copied. A Config with Spread 0 counts as owning all parameters. layer
// is a chain position.
func (c Config) Supplies(other Config, layer int) bool {
	mine := c.divided(layer, false)
	return slices.ContainsFunc(other.divided(layer, true), func(name string) bool { return slices.Contains(mine, name) })
}

// divided returns the parameters that a share of a layer has and others may not, with copies or
// without: all, of a model that is not shared out.
func (c Config) divided(layer int, copies bool) (names []string) {
	for _, p := range c.Chain()[layer].Params() {
		if p.Own || p.Copy && copies || c.Spread == 0 {
			names = append(names, p.Name)
		}
	}
	return names
}

// SameParameters reports whether a layer has the same parameters for the replica of c as for the
// replica of other. layer is a chain position.
func (c Config) SameParameters(other Config, layer int) bool {
	same := func(a, b *Param) bool { return a.Name == b.Name }
	return slices.EqualFunc(c.Chain()[layer].Params(), other.Chain()[layer].Params(), same)
}

// Like returns the same layer for the replica of c, on device d. It copies Updates, the number of
// Tuning and registered texts. It does not copy weights, masters and moments: Adopt does. Registered
// memory belongs to this replica's parameters and is not copied.
func (l *Layer) Like(c Config, d device.Device) (*Layer, error) {
	h := header{Layer: l.ID, Updates: l.Updates}
	if threshold, ok := l.Tuning(); ok {
		h.Threshold = &threshold
	}
	other, err := newLayer(c, c.Chain()[l.ID], h, d, l.dtype)
	if err != nil {
		return nil, err
	}
	for _, s := range l.state {
		if s.Mem.IsZero() {
			other.SetState(s.Name, slices.Clone(s.Text))
		}
	}
	return other, nil
}

// Adopt copies the weights, masters, moments and frozen flags of the parameters that both layers
// have. `from` must have the same chain position and must not be sliced. Copies in `from` are used
// only if copies is true; they have no masters and moments. A pruned matrix is an error. No work on
// either layer may be under way.
func (l *Layer) Adopt(from *Layer, copies bool) error {
	for _, p := range l.params {
		q := from.Param(p.Weight)
		if q == nil || q.Copy && !copies {
			continue
		}
		if p.Format != Dense || q.Format != Dense {
			return fmt.Errorf("layer %d (%s): %s: is pruned, want it dense", l.ID, l.Name, p.Name)
		}
		p.Frozen = q.Frozen
		for _, m := range [][2]tensor.Mem{{p.W, q.W}, {p.Master, q.Master}, {p.M, q.M}, {p.V, q.V}} {
			if m[0].IsZero() || m[1].IsZero() {
				continue
			}
			host, err := device.Read(from.device, m[1])
			if err == nil {
				if m[0].Bytes < host.Bytes { // a slice
					host = host.Span(int64(p.From)*l.dtype.Wide().Size(), m[0].Bytes)
				}
				err = device.Write(l.device, m[0], host)
			}
			if err != nil {
				return fmt.Errorf("layer %d (%s): %s: %w", l.ID, l.Name, p.Name, err)
			}
		}
	}
	l.freezePieces()
	l.divide()
	return nil
}
