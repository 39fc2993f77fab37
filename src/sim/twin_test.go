package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// event is an arrival of a message on a stage of the twin, or the end of an instruction.
type event struct {
	at    float64
	order int // order of creation, for events at the same time
	stage int
	got   string // the message that arrives; "": the stage has ended an instruction
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// twin simulates a step with a queue of events ordered by time, and with named messages. It shares
// no code with the engine.
func twin(s Step) [][]trace.Span {
	m, last := s.Schedule.Map, s.Schedule.Map.Virtual()-1
	var queue events
	made := 0
	push := func(at float64, stage int, got string) {
		made++
		heap.Push(&queue, event{at, made, stage, got})
	}
	here := make([]map[string]bool, m.Stages) // names of the messages that have arrived
	next := make([]int, m.Stages)
	busy := make([]bool, m.Stages)
	spans := make([][]trace.Span, m.Stages)
	links := map[[2]int]float64{}
	for stage := range m.Stages {
		here[stage] = map[string]bool{}
		push(0, stage, "begin")
	}
	rank := func(stage int) int {
		if s.Mesh.Stages == 0 {
			return stage
		}
		return s.Mesh.Rank(stage, s.Replica)
	}
	send := func(now float64, from, to int, kind string, tag, microbatch int, bytes int) {
		name := fmt.Sprintf("%s%d of %d", kind, microbatch, to)
		a, b := rank(m.Stage(from)), rank(m.Stage(to))
		if a == b || s.Bytes == nil {
			push(now, m.Stage(to), name)
			return
		}
		link := s.Network.Node
		if s.Network.PerNode > 0 && a/s.Network.PerNode != b/s.Network.PerNode {
			link = s.Network.Between
		}
		tag += (m.Chunk(to)*s.Schedule.Microbatches + microbatch) % comm.TagMicrobatches
		factor := random.Delay(s.Network.Delay.Most, s.Network.Delay.Seed, uint64(a), uint64(b), uint64(tag), uint64(s.Number))
		departs := max(now, links[[2]int{a, b}])
		transfer := 0.0
		if link.Bandwidth > 0 {
			transfer = factor * (float64(s.Bytes[bytes]) / link.Bandwidth)
		}
		links[[2]int{a, b}] = departs + transfer
		push(departs+(factor*link.Latency+transfer), m.Stage(to), name)
	}
	for len(queue) > 0 {
		e := heap.Pop(&queue).(event)
		stage, list := e.stage, s.Schedule.Lists[e.stage]
		if e.got != "" {
			here[stage][e.got] = true
		} else { // the stage has ended the instruction before next
			busy[stage] = false
			in := list[next[stage]-1]
			v := m.Place(stage, in.Chunk)
			switch {
			case in.Op == schedule.F && v < last:
				send(e.at, v, v+1, "a", comm.TagForward, in.Microbatch, v)
			case (in.Op == schedule.I || in.Op == schedule.B) && v > 0:
				send(e.at, v, v-1, "g", comm.TagBackward, in.Microbatch, v-1)
			}
		}
		if busy[stage] || next[stage] == len(list) {
			continue
		}
		in := list[next[stage]]
		v := m.Place(stage, in.Chunk)
		switch {
		case in.Op == schedule.F && v > 0 && !here[stage][fmt.Sprintf("a%d of %d", in.Microbatch, v)]:
			continue
		case (in.Op == schedule.I || in.Op == schedule.B) && v < last && !here[stage][fmt.Sprintf("g%d of %d", in.Microbatch, v)]:
			continue
		}
		var c cost.Stage
		if s.PerMicrobatch != nil {
			c = s.PerMicrobatch[v][in.Microbatch]
		} else {
			c = s.Costs[v]
		}
		took := map[schedule.Op]float64{schedule.F: c.Forward, schedule.I: c.Input, schedule.W: c.Weight, schedule.B: c.Input + c.Weight}[in.Op]
		if r := rank(stage); r < len(s.Network.Slow) {
			took *= s.Network.Slow[r]
		}
		end := e.at + took
		kind := in.Op
		spans[stage] = append(spans[stage], trace.Span{Op: kind, Layer: -1, Chunk: in.Chunk, Microbatch: in.Microbatch, Start: e.at, End: end})
		busy[stage] = true
		next[stage]++
		push(end, stage, "")
	}
	return spans
}

// randomLists returns legal lists in a random order. Again and again a random stage takes a random
// instruction that can run.
func randomLists(rnd *rand.Rand, m partition.Map, microbatches int) schedule.Schedule {
	s := schedule.Schedule{Map: m, Microbatches: microbatches, Lists: make([][]schedule.Instr, m.Stages)}
	n := m.Virtual()
	const fresh, forwarded, halfway, done = 0, 1, 2, 3
	state := make([][]int, n)
	whole := make([][]bool, n) // B in place of I and W
	weights := make([]int, n)
	for v := range n {
		state[v], whole[v] = make([]int, microbatches), make([]bool, microbatches)
		for i := range whole[v] {
			whole[v][i] = rnd.IntN(2) == 0
		}
	}
	for left := n * microbatches; left > 0; {
		v, i := rnd.IntN(n), rnd.IntN(microbatches)
		op := schedule.F
		switch at := &state[v][i]; {
		case *at == fresh && (v == 0 || state[v-1][i] >= forwarded):
			*at = forwarded
		case *at == forwarded && (v == n-1 || state[v+1][i] >= halfway) && !whole[v][i]:
			op, *at = schedule.I, halfway
		case *at == forwarded && (v == n-1 || state[v+1][i] >= halfway) && weights[v] == i:
			op, *at = schedule.B, done
		case *at == halfway && weights[v] == i:
			op, *at = schedule.W, done
		default:
			continue
		}
		if state[v][i] == done {
			weights[v]++
			left--
		}
		stage := m.Stage(v)
		s.Lists[stage] = append(s.Lists[stage], schedule.Instr{Op: op, Microbatch: i, Chunk: m.Chunk(v)})
	}
	return s
}

// randomStep returns a step with a random choice of all features.
func randomStep(rnd *rand.Rand) Step {
	m := partition.Map{Stages: 1 + rnd.IntN(6), Chunks: 1 + rnd.IntN(3), Vee: rnd.IntN(2) == 0}
	s := Step{Schedule: randomLists(rnd, m, 1+rnd.IntN(7)), Spans: true, Number: rnd.IntN(9)}
	draw := func() cost.Stage {
		if rnd.IntN(10) == 0 {
			return cost.Stage{} // an empty stage
		}
		return cost.Stage{Forward: rnd.Float64(), Input: rnd.Float64(), Weight: rnd.Float64()}
	}
	for range m.Virtual() {
		s.Costs = append(s.Costs, draw())
		s.Bytes = append(s.Bytes, int64(rnd.IntN(1000)))
	}
	if rnd.IntN(2) == 0 {
		s.PerMicrobatch = make([][]cost.Stage, m.Virtual())
		for v := range s.PerMicrobatch {
			for range s.Schedule.Microbatches {
				s.PerMicrobatch[v] = append(s.PerMicrobatch[v], draw())
			}
		}
	}
	if rnd.IntN(4) == 0 {
		s.Bytes = nil
	}
	s.Network = Network{Node: Link{0.1 * rnd.Float64(), 1000 + 5000*rnd.Float64()}, Between: Link{rnd.Float64(), 1000}, PerNode: rnd.IntN(4)}
	if rnd.IntN(3) == 0 {
		s.Network.Node.Bandwidth = 0
	}
	if rnd.IntN(2) == 0 {
		s.Network.Delay = comm.Delay{Most: 4, Seed: rnd.Uint64()}
	}
	if rnd.IntN(2) == 0 {
		s.Network.Slow = []float64{1, 1.5, 3}
	}
	if rnd.IntN(2) == 0 {
		order := []layout.RankOrder{layout.StageMajor, layout.ReplicaMajor}[rnd.IntN(2)]
		s.Mesh = layout.Mesh{Stages: m.Stages, Replicas: 3, Order: order}
		s.Replica = rnd.IntN(3)
	}
	return s
}

// TestAgreesWithTwin: engine and twin agree to the last bit.
func TestAgreesWithTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	for i := range 1500 {
		s := randomStep(rnd)
		if err := s.Schedule.Check(func(int) int { return s.Schedule.Map.Chunks * s.Schedule.Microbatches }); err != nil {
			t.Fatalf("step %d: the test's own schedule: %v", i, err)
		}
		got, want := Run(s), twin(s)
		if !reflect.DeepEqual(got.Spans, want) {
			t.Fatalf("step %d: %+v\nspans %v\nwant %v", i, s, got.Spans, want)
		}
		sums := trace.Step{Stages: want}.Summary()
		if !reflect.DeepEqual(got.Summary, sums) {
			t.Fatalf("step %d: summary %+v, want that of the spans, %+v", i, got.Summary, sums)
		}
		for stage, spans := range want {
			if e := (Extent{spans[0].Start, spans[len(spans)-1].End}); got.Stage[stage] != e {
				t.Fatalf("step %d: stage %d worked from and to %v, want %v", i, stage, got.Stage[stage], e)
			}
		}
		s.Spans = false
		if lean := Run(s); lean.Spans != nil || !reflect.DeepEqual(lean.Summary, sums) {
			t.Fatalf("step %d: without spans %+v, want %+v", i, lean.Summary, sums)
		}
	}
}
