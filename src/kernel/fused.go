package kernel

import "dynmo/src/device"

// isTwo reports whether the operation is two others, one after the other.
func (op Op) isTwo() bool {
	switch op {
	case NormBackwardInputTo, MatmulForwardAdd, MatmulForwardGELU, MatmulBackwardGELU, CombineRowsAdd:
		return true
	}
	return false
}

// compose makes the pending call, of two operations, by one call for each.
func (k *Calls) compose(s device.Stream) {
	m, d := k.pending.Mem, k.pending.Dims
	switch k.pending.Op {
	case NormBackwardInputTo:
		s.Copy(m[0], m[1])
		k.NormBackwardInput(s, m[0], m[2], m[3], m[4], m[5], m[6], d.N, d.C)
	case MatmulForwardAdd:
		k.MatmulForward(s, m[0], m[1], m[2], m[3], d.N, d.C, d.O)
		k.Add(s, m[0], m[0], m[4], d.N*d.O)
	case CombineRowsAdd:
		k.CombineRows(s, m[0], m[1], m[2], m[3], d.N, d.K, d.C)
		k.Add(s, m[0], m[0], m[4], d.N*d.C)
	case MatmulForwardGELU:
		k.MatmulForward(s, m[1], m[2], m[3], m[4], d.N, d.C, d.O)
		k.GELUForward(s, m[0], m[1], d.N*d.O)
	case MatmulBackwardGELU:
		k.MatmulBackwardInput(s, m[0], m[1], m[2], d.N, d.C, d.O)
		k.GELUBackward(s, m[0], m[3], m[0], d.N*d.C)
	}
}
