package schedule

import (
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/random"
)

// crossing returns a schedule in which the first stage takes the last gradient first, while the
// second stage sends gradients in order.
func crossing(microbatches int) Schedule {
	var down, up []Instr
	for m := range microbatches {
		down, up = append(down, Instr{Op: F, Microbatch: m}), append(up, Instr{Op: F, Microbatch: m})
	}
	for m := range microbatches {
		down, up = append(down, Instr{Op: I, Microbatch: (m + microbatches - 1) % microbatches}), append(up, Instr{Op: I, Microbatch: m})
		if m > 0 {
			down = append(down, Instr{Op: W, Microbatch: m - 1})
		}
	}
	for m := range microbatches {
		up = append(up, Instr{Op: W, Microbatch: m})
	}
	down = append(down, Instr{Op: W, Microbatch: microbatches - 1})
	return Schedule{Kind: "crossing", Map: partition.Line(2), Microbatches: microbatches, Lists: [][]Instr{down, up}}
}

// TestOutgoing: if stages work in one order, two buffers for outgoing gradients are enough. Orders
// that cross need more.
func TestOutgoing(t *testing.T) {
	for _, c := range []struct {
		kind                         Kind
		stages, chunks, microbatches int
		want                         []int
	}{
		{KindGPipe, 4, 1, 12, []int{0, 2, 2, 2}},
		{Kind1F1B, 4, 1, 24, []int{0, 2, 2, 2}},
		{KindInterleaved, 2, 3, 16, []int{0, 2, 2, 2, 2, 2}},
		{KindInterleaved, 1, 3, 4, []int{0, 0, 0}},
		{KindZBH1, 4, 1, 24, []int{0, 2, 2, 2}},
		{KindZBH2, 4, 1, 24, []int{0, 2, 2, 2}},
		{KindZBV, 3, 2, 24, []int{0, 2, 2, 0, 2, 2}},
	} {
		s, err := New(c.kind, c.stages, c.chunks, c.microbatches)
		expect.OK(t, err)
		if got := outgoing(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v buffers, want %v", c.kind, got, c.want)
		}
	}
	s := crossing(6)
	expect.OK(t, s.Check(s.Cap))
	// Stage 0 takes 5, 0, 1, 2, 3, 4, and stage 1 sends 0 to 5 in order. Stage 0 has three buffers.
	// 2, 3 and 4 stay in buffers until 5 is taken, which needs one more buffer.
	if got := outgoing(s); !slices.Equal(got, []int{0, 4}) {
		t.Errorf("%v buffers where orders cross, want [0 4]", got)
	}
}

func outgoing(s Schedule) []int {
	var list []int
	for _, p := range s.Peaks() {
		list = append(list, p.Outgoing)
	}
	return list
}

// TestAscendingNeedsNoMore: with one chunk and one order the lists end with the fewest buffers, for
// any costs.
func TestAscendingNeedsNoMore(t *testing.T) {
	for seed := range uint64(300) {
		draw := random.Keyed(seed, 3)
		o := ListOptions{Microbatches: 1 + draw.IntN(12), Rule: Rule{Theta: draw.Float64(), ForwardFirst: draw.IntN(2) == 0}}
		for range 1 + draw.IntN(6) {
			o.Costs = append(o.Costs, cost.Stage{Forward: draw.Float64(), Input: draw.Float64(), Weight: draw.Float64()})
			o.InFlight = append(o.InFlight, 1+draw.IntN(12))
		}
		s := List(o)
		if !s.Ascending() {
			t.Fatalf("seed %d: a list that does not ascend:\n%s", seed, Format(s.Lists))
		}
		peaks := s.Peaks()
		s.grow(peaks)
		for v, p := range peaks {
			if p.Outgoing > LeastOutgoing {
				t.Fatalf("seed %d: virtual stage %d needs %d buffers:\n%s", seed, v, p.Outgoing, Format(s.Lists))
			}
		}
	}
}

func TestAscending(t *testing.T) {
	swapped := func(op Op) Schedule {
		s, err := New(KindZBH1, 2, 1, 4)
		expect.OK(t, err)
		list := s.Lists[1]
		a := slices.Index(list, Instr{Op: op, Microbatch: 1})
		b := slices.Index(list, Instr{Op: op, Microbatch: 2})
		list[a], list[b] = list[b], list[a]
		return s
	}
	for name, c := range map[string]struct {
		s    Schedule
		want bool
	}{"F": {swapped(F), false}, "I": {swapped(I), false}, "W": {swapped(W), true}, "crossing": {crossing(4), false}} {
		if got := c.s.Ascending(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for _, k := range kinds {
		s, err := New(k.kind, 3, k.chunks, 6)
		expect.OK(t, err)
		if got, want := s.Ascending(), k.chunks == 1; got != want {
			t.Errorf("%s: %v, want %v", k.kind, got, want)
		}
	}
}
