package model

import (
	"fmt"
	"slices"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Whole returns the model as a replica has it that has all.
func (c Config) Whole() Config {
	c.Shards = 0
	return c.AsReplica(0, 0)
}

// AsReplica returns the model as a replica has it, of as many as share out what each has of
// its own; 0: each has all.
func (c Config) AsReplica(replica, replicas int) Config {
	if replicas != c.Spread {
		c.Pieces = "" // says nothing of other replicas
	}
	c.Replica, c.Spread = replica, replicas
	if replicas == 0 && c.Shards == 0 {
		c.Replica = 0
	}
	return c
}

// Meets reports whether two shares of a layer have something to exchange. That is so if this share
// has a parameter of its own that the other share has as its own or as a copy. It is also so if
// this share has the whole parameter.
func (c Config) Meets(other Config, layer int) bool {
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

// Holds reports whether a layer of the chain has the same parameters in another share of
// the model.
func (c Config) Holds(other Config, layer int) bool {
	same := func(a, b *Param) bool { return a.Name == b.Name }
	return slices.EqualFunc(c.Chain()[layer].Params(), other.Chain()[layer].Params(), same)
}

// Like returns the layer as it is in another share of the model, on another device: with
// its counters and the texts that are registered, without values. Those come from Adopt.
// Registered memory, which is of the parameters that are here, stays behind.
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

// Adopt takes over the weights, masters and moments of the parameters that `from` has too, and
// whether they are frozen. `from` is a layer of the same chain position. Copies are adopted only if
// copies is set; their masters and moments come from elsewhere. Both layers are dense: a pruned
// layer is an error. `from` is not sliced. No work on either may be under way.
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
