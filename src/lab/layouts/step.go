package layouts

import (
	"dynmo/src/cost"
	"dynmo/src/schedule"
)

// stepper simulates one schedule on many costs. It gives sim.Makespan's seconds, and is faster: the
// order of the instructions is found once.
type stepper struct {
	schedule schedule.Schedule
	list     []instruction // each one comes after those that it waits for
	end      []float64     // by instruction: when it ended in the step that was simulated last
}

// instruction is an instruction of a stage. before and needs are indices of the instruction before it
// on its stage and of the one whose result it needs; -1 is none.
type instruction struct {
	before, needs int32
	virtual       int32
	op            schedule.Op
	sent          bool // whether the result comes from another stage
}

// newStepper returns the stepper of a schedule.
func newStepper(s schedule.Schedule) *stepper {
	p := &stepper{schedule: s}
	virtual := s.Map.Virtual()
	last := make([]int32, len(s.Lists)) // by stage: index of its newest instruction
	next := make([]int, len(s.Lists))   // by stage: number of its instructions in the list
	forward, input := filled(virtual*s.Microbatches), filled(virtual*s.Microbatches)
	for stage := range last {
		last[stage] = -1
	}
	for progress := true; progress; {
		progress = false
		for stage, list := range s.Lists {
			for ; next[stage] < len(list); next[stage]++ {
				in := list[next[stage]]
				v := s.Map.Place(stage, in.Chunk)
				from, table := -1, forward
				switch in.Op {
				case schedule.F:
					from = v - 1
				case schedule.I, schedule.B:
					table = input
					if from = v + 1; from == virtual {
						from = -1
					}
				}
				x := instruction{before: last[stage], needs: -1, virtual: int32(v), op: in.Op}
				if from >= 0 {
					if x.needs = table[from*s.Microbatches+in.Microbatch]; x.needs < 0 {
						break // the result is not in the list yet
					}
					x.sent = s.Map.Stage(from) != stage
				}
				last[stage] = int32(len(p.list))
				if in.Op != schedule.W {
					table[v*s.Microbatches+in.Microbatch] = last[stage]
				}
				p.list = append(p.list, x)
				progress = true
			}
		}
	}
	p.end = make([]float64, len(p.list))
	return p
}

func filled(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = -1
	}
	return list
}

// seconds returns the seconds from the start of a step to the end of its last instruction. costs is by
// virtual stage, for one microbatch. A message takes `message` seconds.
func (p *stepper) seconds(costs []cost.Stage, message float64) float64 {
	latest := 0.0
	for i := range p.list {
		x := &p.list[i]
		start := 0.0
		if x.before >= 0 {
			start = p.end[x.before]
		}
		if x.needs >= 0 {
			arrival := p.end[x.needs]
			if x.sent {
				arrival += message
			}
			start = max(start, arrival)
		}
		c := &costs[x.virtual]
		switch x.op {
		case schedule.F:
			start += c.Forward
		case schedule.B:
			start += c.Input + c.Weight
		case schedule.I:
			start += c.Input
		default:
			start += c.Weight
		}
		p.end[i] = start
		latest = max(latest, start)
	}
	return latest
}
