package kernel

import "dynmo/src/device"

// compose does a call of two operations, for a backend that has no kernel for
// both, by a call of each. It says whether the operation is one of those.
func (k *Calls) compose(s device.Stream, c *Call) bool {
	m := &c.Mem
	switch c.Op {
	case LayerNormBackwardInputTo:
		s.Copy(m[0], m[1])
		k.LayerNormBackwardInput(s, m[0], m[2], m[3], m[4], m[5], m[6], c.N, c.C)
	case MatmulForwardAdd:
		k.MatmulForward(s, m[0], m[1], m[2], m[3], c.N, c.C, c.O)
		k.Add(s, m[0], m[0], m[4], c.N*c.O)
	case MatmulForwardGELU:
		k.MatmulForward(s, m[1], m[2], m[3], m[4], c.N, c.C, c.O)
		k.GELUForward(s, m[0], m[1], c.N*c.O)
	case MatmulBackwardGELU:
		k.MatmulBackwardInput(s, m[0], m[1], m[2], c.N, c.C, c.O)
		k.GELUBackward(s, m[0], m[3], m[0], c.N*c.C)
	default:
		return false
	}
	return true
}
