package model

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/tensor"
)

// readingsOfRouting is the values of what a routed block leaves for the host: the tokens
// that are there; those that are taken; those of which it was foretold rightly whether
// they are among the first, by the predictor or else by the router's sigmoid(r) > 0.5;
// and the sums over the tokens of the router's and of the predictor's cross-entropy, in
// thousandths. They are no part of the loss that is reported.
const readingsOfRouting = 5

// RoutingCounts is the name of these values.
const RoutingCounts = "routed"

// readings are those of the routing, then those of the block.
func (r *routed) readings() []Reading {
	return append([]Reading{{RoutingCounts, readingsOfRouting}}, r.block.Readings()...)
}

func (r *routed) reading(x *Exec, b *Batch, saved tensor.Mem, i int) tensor.Mem {
	s := r.saved(x, x.cut(b, saved))
	if i == 0 {
		return s.decided.readings
	}
	return r.block.Reading(x, &b.Inner.Batch, s.block, i-1)
}

// hosted is where the host decides.
type hosted struct {
	logits, guess tensor.Mem
	decision
}

func (r *routed) onHost(x *Exec, c *cutter) (h hosted) {
	h.logits = c.rows(1, x.Backend.DType())
	if r.Predictor {
		h.guess = c.rows(1, x.Backend.DType())
	}
	h.decision = r.decision(x, c)
	return h
}

// decide finds the tokens that are taken, makes the batch inside the layer of them, and
// leaves on the device what passes need of it. It waits for the logits.
func (r *routed) decide(x *Exec, b *Batch, s routedSaved) error {
	in := b.Inner
	room, err := in.Room()
	if err != nil {
		return err
	}
	h := r.onHost(x, x.cut(b, in.host))
	x.Stream.Copy(h.logits, s.logits)
	if r.Predictor {
		x.Stream.Copy(h.guess, s.guess)
	}
	if err := x.Stream.Sync(); err != nil {
		return err
	}
	r.findFirst(x, b, h.logits)
	tokens := r.take(x, b, h, tensor.Of[int32](room))
	x.Stream.Copy(s.decided.all, h.all)
	if err := in.Select(tokens); err != nil {
		return err
	}
	in.Batch.Capacity, in.Batch.Dispatch = r.room(x), b.Dispatch
	return nil
}

// findFirst notes which tokens are among the first of their sequence.
func (r *routed) findFirst(x *Exec, b *Batch, logits tensor.Mem) {
	in, d := b.Inner, x.Backend.DType()
	for lo := 0; lo < b.Tokens; {
		hi := lo
		for ; hi < b.Tokens && int(b.at(hi))/x.T == int(b.at(lo))/x.T; hi++ {
			in.member[hi], in.order[hi] = false, int32(hi)
		}
		sequence := in.order[lo:hi]
		slices.SortFunc(sequence, func(i, j int32) int {
			return cmp.Or(cmp.Compare(number(logits, d, int(j)), number(logits, d, int(i))), cmp.Compare(i, j))
		})
		for _, i := range sequence[:r.first(hi-lo)] {
			in.member[i] = true
		}
		lo = hi
	}
}

// take lists the tokens that are taken, in the full microbatch in index, and fills in the
// decision. It returns how many they are.
func (r *routed) take(x *Exec, b *Batch, h hosted, index []int32) (tokens int) {
	d, wide, rows := x.Backend.DType(), x.Backend.DType().Wide(), tensor.Of[int32](h.rows)
	right, losses := 0, [2]float64{}
	for i := range b.Tokens {
		first, logit := b.Inner.member[i], number(h.logits, d, i)
		p, loss := crossEntropy(logit, first)
		losses[0] += loss
		setNumber(h.dlogits, d, i, r.Auxiliary*x.Scale*(p-one(first)))
		taken, foretold := first, p > 0.5
		if r.Predictor {
			q, loss := crossEntropy(number(h.guess, d, i), first)
			losses[1] += loss
			setNumber(h.dguess, d, i, x.Scale*(q-one(first)))
			taken = q > r.Threshold
			foretold = taken
		}
		if foretold == first {
			right++
		}
		if !taken {
			continue
		}
		if r.One {
			p = 1
		}
		setNumber(h.gate, wide, tokens, p)
		setNumber(h.keep, wide, tokens, 1-p)
		rows[tokens], index[tokens] = int32(i), b.at(i)
		tokens++
	}
	copy(tensor.Of[float64](h.readings), []float64{float64(b.Tokens), float64(tokens), float64(right), 1000 * losses[0], 1000 * losses[1]})
	return tokens
}

// crossEntropy returns sigmoid(z), and the binary cross-entropy of it against a label.
func crossEntropy(z float64, label bool) (p, loss float64) {
	e := math.Exp(-math.Abs(z))
	p = 1 / (1 + e)
	if z < 0 {
		p = e / (1 + e)
	}
	return p, max(z, 0) - z*one(label) + math.Log1p(e)
}

// one returns 1 of true, 0 of false.
func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// number returns an element of host memory.
func number(m tensor.Mem, d tensor.DType, i int) float64 {
	switch d {
	case tensor.F64:
		return tensor.Of[float64](m)[i]
	case tensor.BF16:
		return float64(tensor.FromBF16(tensor.Of[uint16](m)[i]))
	}
	return float64(tensor.Of[float32](m)[i])
}

// setNumber rounds z to an element of host memory.
func setNumber(m tensor.Mem, d tensor.DType, i int, z float64) {
	switch d {
	case tensor.F64:
		tensor.Of[float64](m)[i] = z
	case tensor.BF16:
		tensor.Of[uint16](m)[i] = tensor.ToBF16(float32(z))
	default:
		tensor.Of[float32](m)[i] = float32(z)
	}
}
