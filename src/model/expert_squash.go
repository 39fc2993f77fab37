package model

import "math"

// A squashed router scores experts by outer·tanh(a), with a what its first matrix makes of a
// token (Zhu et al. 2024). As the host waits for a in any case, and experts are few, tanh
// and the outer matrix are computed there, in float64; the gradient of the outer matrix is
// added up on the device.

// squash sets the dispatch's tanh, logits and outer matrix, and leaves tanh on the device.
// It returns the logits by their place.
func (e *experts) squash(x *Exec, d *Dispatch, h expertsHost, s expertsSaved, n int) func(i int) float64 {
	dtype := x.Backend.DType()
	for i := range d.outer {
		d.outer[i] = number(h.outer, dtype, i)
	}
	for t := range n {
		u, z := d.squashed[t*e.Count:][:e.Count], d.logits[t*e.Count:][:e.Count]
		for k := range u {
			u[k] = math.Tanh(number(h.logits, dtype, t*e.Count+k))
			setNumber(h.squashed, dtype, t*e.Count+k, u[k])
		}
		for k := range z {
			z[k] = 0
			for j, w := range d.outer[k*e.Count:][:e.Count] {
				z[k] += w * u[j]
			}
		}
	}
	x.Stream.Copy(s.squashed, h.squashed)
	return func(i int) float64 { return d.logits[i] }
}

// unsquash replaces the gradients of the logits, which the host has, by those of a, and
// leaves the former on the device:
//
//	da = outerᵀ·dz · (1 - tanh²)
func (e *experts) unsquash(x *Exec, d *Dispatch, host expertsHost, h expertsHeld, n int) {
	dtype := x.Backend.DType()
	for t := range n {
		da := d.sums
		clear(da)
		for k := range e.Count {
			i := t*e.Count + k
			dz := number(host.logits, dtype, i)
			setNumber(host.squashed, dtype, i, dz)
			for j, w := range d.outer[k*e.Count:][:e.Count] {
				da[j] += w * dz
			}
		}
		for k, u := range d.squashed[t*e.Count:][:e.Count] {
			setNumber(host.logits, dtype, t*e.Count+k, da[k]*(1-u*u))
		}
	}
	x.Stream.Copy(h.dscores, host.squashed)
}
