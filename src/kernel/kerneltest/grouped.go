package kerneltest

import (
	"bytes"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
)

// sharedKeys asserts that heads that share keys and values get the bits that they get
// with copies of them, in out, in lse and in the gradient of queries.
func sharedKeys(t *testing.T, k kernel.Backend, dev device.Device) {
	const nh, kv = 4, 2
	of, lengths := maker{k.DType()}, []int{70, 0, 1, 130, 33}
	for _, hs := range []int{5, 32, 64} {
		c := nh * hs
		shared, apart := of.grouped(lengths, 140, c, nh, kv), of.attention(lengths, 140, c, nh)
		for i := range shared {
			for p := range shared[i].operands {
				apart[i].operands[p].data = shared[i].operands[p].data
			}
			for p, at := range map[string]int{"qkv": 2, "dqkv": 0} {
				if operand := &apart[i].operands[at]; operand.name == p {
					operand.data = copied(operand.data.([]float64), c, kv*hs, hs)
				}
			}
			got, want := results(t, k, dev, shared[i]), results(t, k, dev, apart[i])
			outs := 2 // out and lse
			if shared[i].Op == kernel.AttentionBackward {
				outs = 1
				size := int(k.DType().Size())
				got[0], want[0] = leading(got[0], (c+2*kv*hs)*size, c*size), leading(want[0], 3*c*size, c*size)
			}
			for p := range outs {
				if !bytes.Equal(got[p], want[p]) {
					t.Errorf("%s of head size %d: %s has other bits than with copies of keys", shared[i].Op, hs, shared[i].operands[p].name)
				}
			}
		}
	}
}

// copied returns rows of c queries and of keys and values, each of so many channels, with
// a copy of keys and values for each head of hs.
func copied(qkv []float64, c, keys, hs int) (all []float64) {
	share := c / keys
	for ; len(qkv) > 0; qkv = qkv[c+2*keys:] {
		all = append(all, qkv[:c]...)
		for part := c; part < c+2*keys; part += keys {
			for head := range c / hs {
				all = append(all, qkv[part+head/share*hs:][:hs]...)
			}
		}
	}
	return all
}

// leading returns the first bytes of every row.
func leading(rows []byte, width, first int) (all []byte) {
	for ; len(rows) > 0; rows = rows[width:] {
		all = append(all, rows[:first]...)
	}
	return all
}
