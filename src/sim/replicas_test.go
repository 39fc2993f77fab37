package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestReplicasByHand: two stages of two layers, two replicas, one microbatch of F and B; f = 1, i =
// 1, w = 1 for every layer. Stage 1 works 2-8, stage 0 0-2 and 8-12. Gradients of layer 3 are
// complete at 6, of 2 at 8, of 1 at 10, of 0 at 12. Each layer is a bucket, except small layers.
func TestReplicasByHand(t *testing.T) {
	const g = 4 << 20 // bytes of gradients: larger than a bucket of two replicas, equal to a bucket of four
	layers, small, spread := make([]cost.Layer, 4), make([]cost.Layer, 4), make([]cost.Layer, 4)
	for l := range layers {
		layers[l] = cost.Layer{Forward: 1, BackwardInput: 1, BackwardWeight: 1, Bytes: cost.Bytes{Gradients: g}}
		small[l], spread[l] = layers[l], layers[l]
		small[l].Bytes.Gradients = 100
	}
	spread[0].Bytes.Gradients, spread[0].Bytes.Own = 3*g, 2*g
	cuts := partition.Partition{0, 2, 4}
	s := Step{
		Schedule: lists([]schedule.Instr{do(schedule.F, 0), do(schedule.B, 0)}, []schedule.Instr{do(schedule.F, 0), do(schedule.B, 0)}),
		Costs:    cost.Table{Layers: layers}.Stages(cuts, partition.Line(2)),
		Mesh:     layout.Mesh{Stages: 2, Replicas: 2},
		Rounds:   &Rounds{},
	}
	split := s
	split.Schedule = lists([]schedule.Instr{do(schedule.F, 0), do(schedule.I, 0), do(schedule.W, 0)}, []schedule.Instr{do(schedule.F, 0), do(schedule.I, 0), do(schedule.W, 0)})
	alone, apart, others, four, rounded, slices := s, s, s, s, s, s
	sums := func(s schedule.Sums) *Rounds { return &Rounds{sums: s} } // the loop adds the messages of a network
	slices.Rounds = sums(schedule.Sums{Sliced: true})
	rounded.Rounds = sums(schedule.Sums{Rounded: true})
	four.Mesh.Replicas = 4
	groups := four
	groups.Rounds = sums(schedule.Sums{Group: 2})
	alone.Mesh = layout.Mesh{}
	apart.Ranks, others.Ranks = []int{0, 2, 4, 6}, []int{0, 1, 2, 5}
	for _, tc := range []struct {
		name              string
		step              Step
		layers            []cost.Layer
		network           Network
		pipeline, seconds float64
	}{
		{"free", s, layers, Network{}, 12, 12},
		// A round takes (1/2)·g/g = 0.5 s. First rounds are at 10 and 12, second rounds at 12.5 and
		// 13. The second round of layer 1 follows the first round of layer 0.
		{"hidden", s, layers, Network{Node: Link{0, g}}, 12, 13.5},
		// A round takes 1.5 s: first rounds 10-11.5 and 12-13.5, then second rounds. Those of stage
		// 1 end at 12.5.
		{"queue", s, layers, Network{Node: Link{0, g / 3.}}, 12, 16.5},
		// First rounds are 10-11.5 and 12-13.5, second rounds 12-13.5 and 13.5-15.
		{"latency", s, layers, Network{Node: Link{1.5, 0}}, 12, 15},
		{"latency of four", four, layers, Network{Node: Link{1.5, 0}}, 12, 15},
		// (3/4)·g/(g/2) = 1.5 s.
		{"queue of four", four, layers, Network{Node: Link{0, g / 2.}}, 12, 16.5},
		// First rounds are 10-10.25 and 12-12.25, then two of 0.5 s.
		{"rounded", rounded, layers, Network{Node: Link{0, g}}, 12, 13.25},
		// Rounds carry (1/2)·g, (1/4)·g and (3/4)·g. First rounds are 10-11 and 12-13, second
		// rounds 13-13.5 and 13.5-14, last rounds 14-15.5 and 15.5-17.
		{"groups", groups, layers, Network{Node: Link{0, g / 2.}}, 12, 17},
		// Second rounds of 2 s from 12 on, last ones of 6 s from 16 on.
		{"groups on nodes", groups, layers, Network{Between: Link{0, g / 8.}, PerNode: 2}, 12, 28},
		{"groups and latency", groups, layers, Network{Node: Link{1.5, 0}}, 12, 16.5},
		// Both layers of stage 0 are one bucket: two rounds of (1/2)·200/100 = 1 s from 12 on.
		{"one bucket", s, small, Network{Node: Link{0, 100}}, 12, 14},
		// Layer 0's experts exchange rows until 12. Four rounds of 0.5 s follow.
		{"spread experts", s, spread, Network{Node: Link{0, g}}, 12, 14},
		// Weights take 0.5 s each and arrive at 0.5 and 1: forwards of stage 0 are 0.5-2.5. Gradients
		// have one round, 10.5-11 and 12.5-13.
		{"slices", slices, layers, Network{Node: Link{0, g}}, 12.5, 13},
		// Weights arrive at 2 and 4: forwards of stage 0 are 2-3 and 4-5.
		{"slices on slow links", slices, layers, Network{Node: Link{0, g / 4.}}, 15, 17},
		// Weights arrive at 6 and 12: forwards of stage 0 are 6-7 and 12-13. Gradients: 21-27, 27-33.
		{"slices on slower links", slices, layers, Network{Node: Link{0, g / 12.}}, 23, 33},
		{"slices and latency", slices, layers, Network{Node: Link{1.5, 0}}, 13.5, 15},
		// Ranks 0 and 1 are stage 0's replicas. On one node each they give the same.
		{"between", s, layers, Network{Node: Link{0, 1e12}, Between: Link{0, g / 3.}, PerNode: 1}, 12, 16.5},
		{"in the node", s, layers, Network{Node: Link{0, g / 3.}, Between: Link{100, 1}, PerNode: 2}, 12, 16.5},
		// I 4-6 and 6-8, W 6-8 and 8-10: layers complete at 7, 8, 9, 10.
		{"split", split, layers, Network{Node: Link{0, g}}, 10, 11.5},
		// Replica 1 is half as fast on stage 1: 2-14. So its stage 0 ends at 18, and layer 0's sum
		// waits for it.
		{"slow replica", s, layers, Network{Node: Link{0, g}, Slow: []float64{1, 1, 1, 2}}, 18, 19.5},
		{"slow rank of the world", others, layers, Network{Node: Link{0, g}, Slow: []float64{1, 1, 1, 9, 9, 2}}, 18, 19.5},
		{"nodes of the world", apart, layers, Network{Node: Link{0, 1e12}, Between: Link{0, g / 3.}, PerNode: 2}, 12, 16.5},
		{"one replica", alone, layers, Network{Node: Link{0, 1}}, 12, 12},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.step.Network = tc.network
			tc.step.Rounds = NewRounds(tc.network, tc.step.Mesh, tc.step.Ranks, tc.step.Rounds.sums)
			w := Replicas(tc.step, cuts, tc.layers)
			if math.Abs(w.Pipeline-tc.pipeline) > 1e-12 || math.Abs(w.Seconds-tc.seconds) > 1e-12 {
				t.Errorf("pipeline %v, whole step %v, want %v and %v", w.Pipeline, w.Seconds, tc.pipeline, tc.seconds)
			}
			if got, want := w.Exposed(), tc.seconds-tc.pipeline; math.Abs(got-want) > 1e-12 {
				t.Errorf("%v seconds in the open, want %v", got, want)
			}
		})
	}
}

// TestFrozenLayersAreNotSummed: without gradients there are no messages.
func TestFrozenLayersAreNotSummed(t *testing.T) {
	layers := []cost.Layer{{Forward: 1}, {Forward: 1}}
	cuts := partition.Partition{0, 1, 2}
	s := Step{
		Schedule: plain(t, schedule.Kind1F1B, 2, 3), Costs: cost.Table{Layers: layers}.Stages(cuts, partition.Line(2)),
		Mesh: layout.Mesh{Stages: 2, Replicas: 4}, Network: Network{Node: Link{100, 1}},
	}
	s.Rounds = NewRounds(s.Network, s.Mesh, nil, schedule.Sums{})
	if w := Replicas(s, cuts, layers); w.Exposed() != 0 {
		t.Errorf("%v seconds in the open, want 0", w.Exposed())
	}
}

// TestReplicasAreRuns: the result of every replica equals that of Run, whether replicas are alike
// or not.
func TestReplicasAreRuns(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4)) // fixed seed: a failure must repeat
	for i := range 300 {
		s := randomStep(rnd)
		s.Spans = false
		s.Mesh = layout.Mesh{Stages: s.Schedule.Map.Stages, Replicas: 1 + rnd.IntN(5), Order: layout.StageMajor}
		cuts := partition.Partition{0} // one layer on each virtual stage
		for v := range s.Schedule.Map.Virtual() {
			cuts = append(cuts, v+1)
		}
		s.Rounds = NewRounds(s.Network, s.Mesh, nil, schedule.Sums{})
		w := Replicas(s, cuts, make([]cost.Layer, cuts.Layers()))
		last := 0.0
		for d, got := range w.Replicas {
			s.Replica = d
			want := Run(s)
			if got.Finish != want.Finish || got.Idle() != want.Idle() {
				t.Fatalf("step %d, replica %d: ends at %v with %v idle, want %v and %v", i, d, got.Finish, got.Idle(), want.Finish, want.Idle())
			}
			last = max(last, want.Finish)
		}
		if w.Pipeline != last || w.Seconds != last {
			t.Fatalf("step %d: pipeline %v, step %v, want both %v", i, w.Pipeline, w.Seconds, last)
		}
	}
}

// TestAlikeIsComputedOnce: replicas with equally fast links and ranks share their result. Other
// replicas do not.
func TestAlikeIsComputedOnce(t *testing.T) {
	s := Step{
		Schedule: plain(t, schedule.Kind1F1B, 3, 4), Costs: equal(3, cost.Stage{Forward: 1, Input: 1, Weight: 1}),
		Bytes: []int64{8, 8, 8}, Mesh: layout.Mesh{Stages: 3, Replicas: 4, Order: layout.ReplicaMajor},
	}
	for _, tc := range []struct {
		name    string
		network Network
		want    int // number of different results
	}{
		{"equal", Network{Node: Link{1, 1}}, 1},
		// Ranks 0-2 | 3-5 | 6-8 | 9-11 on nodes 0-3 | 4-7 | 8-11: four patterns,
		// none, after the first, after the second, none.
		{"nodes", Network{Node: Link{1, 1}, Between: Link{2, 1}, PerNode: 4}, 3},
		{"slow", Network{Slow: []float64{1, 1, 1, 1, 2, 1}}, 2},
		{"delays", Network{Node: Link{1, 1}, Delay: comm.Delay{Most: 2}}, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.Network = tc.network
			s.Rounds = NewRounds(s.Network, s.Mesh, nil, schedule.Sums{})
			w := Replicas(s, partition.Partition{0, 1, 2, 3}, make([]cost.Layer, 3))
			seen := map[*float64]bool{}
			for _, r := range w.Replicas {
				seen[&r.Busy[0]] = true
			}
			if len(seen) != tc.want {
				t.Errorf("%d results, want %d", len(seen), tc.want)
			}
		})
	}
}
