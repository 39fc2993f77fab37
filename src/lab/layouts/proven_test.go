package layouts

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// bruteForce goes through all cuts that the rules of a problem allow. It returns the shortest step of those
// within the limit on memory, by package sim, and the least bytes that any cuts need on their fullest
// stage. They are infinite if there are no such cuts.
func bruteForce(v *solver) (seconds, bytes float64) {
	seconds, bytes = math.Inf(1), math.Inf(1)
	cuts := make(partition.Partition, v.virtual()+1)
	cuts[v.virtual()] = len(v.Layers)
	try := func() {
		for k := range v.virtual() {
			empty := cuts[k+1] == cuts[k]
			if cuts[k+1] < cuts[k] || empty && (!v.Empty || k == 0 || k == v.virtual()-1) || k > 0 && cuts[k] < len(v.Layers) && !v.CanCut[cuts[k]] {
				return
			}
		}
		if v.Legal != nil && v.Legal(cuts) != nil {
			return
		}
		costs, sizes, most := make([]cost.Stage, v.virtual()), make([]int64, v.virtual()), int64(0)
		flying, needs := v.schedule.InFlight(), make([]int64, v.Stages)
		for k := range costs {
			lo, hi := cuts.Range(k)
			stage := v.schedule.Map.Stage(k)
			for _, l := range v.Layers[lo:hi] {
				costs[k] = costs[k].Plus(l.Stage())
				needs[stage] += l.Bytes.Static() + int64(flying[k])*l.Bytes.Activations
			}
			sizes[k] = 1
			most = max(most, needs[stage])
		}
		if v.Chunks > 1 { // the chunks of a stage have their peaks at different times
			units, _ := v.unitsOf(cuts)
			most = slices.Max(v.bytes(units))
		}
		bytes = min(bytes, float64(most))
		if v.Memory > 0 && most > v.Memory {
			return
		}
		message := v.Message
		if v.Slower != nil {
			message += v.Slower(cuts)
		}
		seconds = min(seconds, sim.Run(sim.Step{Schedule: v.schedule, Costs: costs, Bytes: sizes, Network: sim.Uniform(message, 0)}).End)
	}
	var visit func(k int)
	visit = func(k int) {
		if k == v.virtual() {
			try()
			return
		}
		for cuts[k] = cuts[k-1]; cuts[k] <= len(v.Layers); cuts[k]++ {
			visit(k + 1)
		}
	}
	visit(1)
	return seconds, bytes
}

// randomRequest returns a small request with random costs, for a trainer that is drawn.
func randomRequest(rnd *rand.Rand, chunks int) (Request, cost.Table) {
	r := Request{Trainer: []Trainer{megatron, torchtitan, deepspeed}[rnd.IntN(3)]}
	r.Stages, r.Microbatches = 1+rnd.IntN(5), 1+rnd.IntN(8)
	if chunks > 1 {
		r.Trainer, r.Stages = []Trainer{megatron, torchtitan}[rnd.IntN(2)], 2
		r.Microbatches = r.Stages * (1 + rnd.IntN(4))
	} else if r.Trainer.Name == "torchtitan" && rnd.IntN(2) == 0 {
		r.Schedule = schedule.KindGPipe
	}
	if rnd.IntN(2) == 0 {
		r.Message = rnd.Float64()
	}
	var table cost.Table
	add := func(name string) {
		l := cost.Layer{Name: name}.WithSeconds(cost.Stage{Forward: rnd.Float64(), Input: rnd.Float64(), Weight: rnd.Float64()})
		l.Bytes.Parameters, l.Bytes.Activations = int64(rnd.IntN(10)), int64(rnd.IntN(10))
		table.Layers = append(table.Layers, l)
	}
	add("embedding")
	for b := range 2 + rnd.IntN(7) {
		add(fmt.Sprintf("block.%d", b))
	}
	if r.Trainer.Name == "megatron" {
		for k := range rnd.IntN(3) {
			add(fmt.Sprintf("mtp.%d", k))
		}
	}
	add("head")
	return r, table
}

// TestProven: what is called proven is the best of all cuts. If some cuts obey the rules and the limit on
// memory, the search finds such cuts.
func TestProven(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	compared := 0
	for n := range 400 {
		chunks := 1 + n%4/3
		r, table := randomRequest(rnd, chunks)
		c, err := NewChain(table.Layers)
		if err != nil {
			t.Fatal(err)
		}
		x, err := r.attempt(c, table, chunks)
		if err != nil {
			continue // fewer places than stages
		}
		want, least := bruteForce(x.solver)
		if limited := rnd.IntN(2) == 0; limited && !math.IsInf(least, 1) {
			x.Memory = int64(least) + []int64{-1, 0, 0, 1, 4}[rnd.IntN(5)]
			want, _ = bruteForce(x.solver)
		}
		found, err := findBest(budget/1000, x.Problem, nil)
		name := fmt.Sprintf("case %d, %s, %d x %d stages, %d layers, memory %d", n, r.Trainer.Name, r.Stages, chunks, len(table.Layers), x.Memory)
		switch {
		case (err != nil) != math.IsInf(want, 1):
			t.Errorf("%s: error %v, and the best step takes %v s", name, err, want)
		case err != nil:
		case found.Proven != (chunks == 1):
			t.Errorf("%s: proven %v", name, found.Proven)
		case math.Abs(found.Best[0].Seconds-want) > 1e-6*want:
			t.Errorf("%s: %v s, want %v", name, found.Best[0].Seconds, want)
		default:
			compared++
			for _, l := range found.Best { // what is shown can be given as the present layout
				cuts, err := r.Trainer.read(r.Trainer.brief(l.Cuts, c), c, x.Problem)
				if err != nil || !cuts.Equal(l.Cuts) {
					t.Errorf("%s: %v is shown as %s, which is read as %v, %v", name, l.Cuts, r.Trainer.brief(l.Cuts, c), cuts, err)
				}
			}
		}
	}
	if compared < 250 {
		t.Errorf("%d of 400 cases compared", compared)
	}
}

// TestNanotronComparesUnequalBlocks: coarse costs of embedding and head miss layouts that nanotron can make.
func TestNanotronComparesUnequalBlocks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for n := range 20 {
		var table cost.Table
		add := func(name string, x float64) {
			table.Layers = append(table.Layers, cost.Layer{Name: name}.WithSeconds(cost.Stage{Forward: x, Input: x, Weight: x}))
		}
		add("embedding", 0.1)
		for b := range 10 + rnd.IntN(20) {
			add(fmt.Sprintf("block.%d", b), 0.5+rnd.Float64())
		}
		add("head", 4*rnd.Float64())
		stages := 2 + rnd.IntN(5)
		r := Request{Trainer: nanotron, Problem: Problem{Stages: stages, Microbatches: 4 * stages}}
		a, err := Plan(r, table)
		if err != nil {
			t.Fatal(err)
		}
		if a.Proven {
			t.Errorf("case %d: proven, and only layouts of some costs were compared", n)
		}
		c, _ := NewChain(table.Layers)
		x, err := r.attempt(c, table, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 2000 { // costs that are not multiples of a step
			cuts, ok := nanotronCuts(nanotronCost{rnd.IntN(4 * nanotronUnit), rnd.IntN(10 * nanotronUnit)}, c, stages)
			if units, _ := x.unitsOf(cuts); ok && x.evaluate(units) < a.Best[0].Seconds*(1-1e-6) {
				t.Errorf("case %d: nanotron also makes %v, which takes %v s, and the best %v", n, cuts, x.evaluate(units), a.Best[0].Seconds)
				break
			}
		}
	}
}
