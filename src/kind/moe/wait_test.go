package moe

import (
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"testing"
)

// waiting is a stream that counts how often the host waits for it.
type waiting struct {
	device.Stream
	waits int
}

func (s *waiting) Sync() error {
	s.waits++
	return s.Stream.Sync()
}

// TestPassesOfExpertsWait counts the waits of the host in a forward and a backward of two
// blocks: none where the products of all experts are one call, else one in the forward of
// each layer of experts. What a layer says of it is so.
func TestPassesOfExpertsWait(t *testing.T) {
	mlp := Experts{Count: 4, Top: 2, Z: 0.1, Squashed: true}
	balanced := Experts{Count: 4, Top: 2, Balanced: true, Deviation: 8, Rounds: 16, Capacity: 0.8}
	groups, squashedGroups := balanced, mlp
	groups.Groups, squashedGroups.Groups = 2, 4
	for _, k := range []struct {
		name  string
		of    Experts
		csr   bool
		waits int
	}{
		{"block", Experts{Count: 4, Top: 2}, false, 0}, {"squashed", mlp, false, 0}, {"s-base", balanced, false, 0},
		{"groups, s-base", groups, false, 0}, {"groups, squashed", squashedGroups, false, 0},
		{"csr", mlp, true, 2}, {"groups, csr", groups, true, 4},
	} {
		t.Run(k.name, func(t *testing.T) {
			ch := modeltest.New(t, mixture(k.of), tensor.F32)
			if k.csr {
				modeltest.Thin(t, ch.S, model.CSR)
			}
			stream := &waiting{Stream: ch.X.Stream}
			ch.X.Stream = stream
			ch.Gradients()
			said := 0
			for _, l := range ch.S.Layers {
				if l.Traits.Waits {
					said++
				}
			}
			if stream.waits != k.waits || said != k.waits {
				t.Errorf("the host waits %d times, and %d layers say so, want %d", stream.waits, said, k.waits)
			}
		})
	}
}
