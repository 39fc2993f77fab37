package contest

import "math"

// vee builds a schedule of two chunks on each stage that lie in a V (Qi et al. 2024),
// greedily for its costs as the paper has it for ZB-V: what can start first is done. W
// fills in where a stage would wait for at least the share theta of it, and makes room
// for F.
type vee struct {
	*builder
	theta        float64
	forwardFirst bool // of F and I that can start at the same time, F
	deepFirst    bool // of F of two chunks, that of the second
	room         bool // W comes before an I where it lets an F start
}

func newVee(p Problem, theta float64, forwardFirst, deepFirst, room bool) *vee {
	return &vee{newBuilder(p, inVee(len(p.Costs))), theta, forwardFirst, deepFirst, room}
}

func (v *vee) choose(stage int) choice {
	forward, input, weight := none(), none(), none()
	for _, chunk := range []int{1, 0} {
		virtual := v.m.Place(stage, chunk)
		if start := v.start(virtual, 0); start < forward.start || !v.deepFirst && start == forward.start {
			forward = choice{virtual, 0, start}
		}
		if start := v.start(virtual, 1); start < input.start {
			input = choice{virtual, 1, start}
		}
		if start := v.start(virtual, 2); !math.IsInf(start, 1) && (math.IsInf(weight.start, 1) || v.next[virtual][2] < v.next[weight.virtual][2]) {
			weight = choice{virtual, 2, start}
		}
	}
	chosen := input
	if forward.start < input.start || v.forwardFirst && forward.start == input.start {
		chosen = forward
	}
	wait := chosen.start - v.clock[stage]
	if wait > 0 && wait >= v.theta*v.took[weight.virtual][2] || v.room && v.held[stage] >= 2*v.limit()-1 {
		if !math.IsInf(weight.start, 1) {
			return weight
		}
	}
	return chosen
}

func (v *vee) done(choice, float64) {}
