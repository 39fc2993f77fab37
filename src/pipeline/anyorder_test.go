package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// anyOrder returns a random legal schedule: each time any stage does anything
// that it can, but the weights in ascending order. With one in split, the two
// halves of a backward are apart.
func anyOrder(draw *rand.Rand, m partition.Map, microbatches, split int) schedule.Schedule {
	s := schedule.Schedule{Kind: "any", Map: m, Microbatches: microbatches, Lists: make([][]schedule.Instr, m.Stages)}
	n := m.Virtual()
	forward, input, weights := make([][]bool, n+1), make([][]bool, n+1), make([]int, n)
	for v := range n + 1 {
		forward[v], input[v] = make([]bool, microbatches), make([]bool, microbatches)
	}
	apart := func(v, mb int) bool { return (v+mb)%split == 0 }
	for {
		var can []schedule.Instr
		var at []int
		for v := range n {
			add := func(op schedule.Op, mb int) {
				can, at = append(can, schedule.Instr{Op: op, Microbatch: mb, Chunk: m.Chunk(v)}), append(at, v)
			}
			for mb := range microbatches {
				if !forward[v][mb] && (v == 0 || forward[v-1][mb]) {
					add(schedule.F, mb)
				}
				if forward[v][mb] && !input[v][mb] && (v == n-1 || input[v+1][mb]) {
					if apart(v, mb) {
						add(schedule.I, mb)
					} else if weights[v] == mb {
						add(schedule.B, mb)
					}
				}
			}
			if mb := weights[v]; mb < microbatches && input[v][mb] {
				add(schedule.W, mb)
			}
		}
		if len(can) == 0 {
			return s
		}
		i := draw.IntN(len(can))
		in, v := can[i], at[i]
		stage := m.Stage(v)
		s.Lists[stage] = append(s.Lists[stage], in)
		switch in.Op {
		case schedule.F:
			forward[v][in.Microbatch] = true
		case schedule.I:
			input[v][in.Microbatch] = true
		case schedule.B:
			input[v][in.Microbatch] = true
			weights[v]++
		case schedule.W:
			weights[v]++
		}
	}
}

// TestAnyLegalSchedule: whatever order is legal is executed, without a deadlock,
// and gives the bits of one stage, however many chunks stages hold and where.
func TestAnyLegalSchedule(t *testing.T) {
	c := tiny
	c.HeadShards = 3
	want := train(t, c, newSchedule(t, schedule.KindGPipe, 1, 1))
	seeds := uint64(15)
	if os.Getenv("DYNMO_LONG") == "1" {
		seeds = 100
	}
	for seed := range seeds {
		draw := random.Keyed(seed, 5)
		m := partition.Map{Stages: 1 + draw.IntN(4), Chunks: 1 + draw.IntN(3), Vee: draw.IntN(2) == 0}
		plan := anyOrder(draw, m, microbatches, 1+draw.IntN(2))
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			expect.OK(t, plan.Check(func(int) int { return m.Chunks * microbatches }))
			train(t, c, plan).agree(t, want, plan)
		})
	}
}

// TestCrossingOrders: the second stage gives back gradients in an order in which
// the first takes the last one first. With two buffers for those on their way
// both would wait for ever.
func TestCrossingOrders(t *testing.T) {
	plan := crossing()
	expect.OK(t, plan.Check(func(int) int { return microbatches }))
	train(t, tiny, plan).agree(t, train(t, tiny, newSchedule(t, schedule.KindGPipe, 1, 1)), plan)
}

func crossing() schedule.Schedule {
	const f, i, w = schedule.F, schedule.I, schedule.W
	return schedule.Schedule{Kind: "crossing", Map: partition.Line(2), Microbatches: microbatches, Lists: [][]schedule.Instr{
		list(f, 0, f, 1, f, 2, f, 3, i, 3, i, 0, w, 0, i, 1, w, 1, i, 2, w, 2, w, 3),
		list(f, 0, f, 1, f, 2, f, 3, i, 1, i, 2, i, 0, i, 3, w, 0, w, 1, w, 2, w, 3),
	}}
}

// list returns instructions from ops and microbatches in turn.
func list(pairs ...any) []schedule.Instr {
	var out []schedule.Instr
	for at := 0; at < len(pairs); at += 2 {
		out = append(out, schedule.Instr{Op: pairs[at].(schedule.Op), Microbatch: pairs[at+1].(int)})
	}
	return out
}
