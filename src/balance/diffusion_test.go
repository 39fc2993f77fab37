package balance

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
)

// channels links goroutines that stand for stages.
type channels struct {
	stage, stages int
	to            func(from, to int) chan []float64
	max           *reduction
}

func (c channels) Exchange(stage int, out []float64) ([]float64, error) {
	c.to(c.stage, stage) <- append([]float64(nil), out...)
	return <-c.to(stage, c.stage), nil
}

func (c channels) Max(values []float64) error {
	c.max.run(values, c.stages)
	return nil
}

// reduction is an elementwise maximum over goroutines.
type reduction struct {
	sync.Mutex
	all     []float64
	waiting []chan []float64
}

func (r *reduction) run(values []float64, stages int) {
	r.Lock()
	if r.all == nil {
		r.all = append([]float64(nil), values...)
	}
	for i, v := range values {
		r.all[i] = max(r.all[i], v)
	}
	if len(r.waiting) < stages-1 {
		wait := make(chan []float64)
		r.waiting = append(r.waiting, wait)
		r.Unlock()
		copy(values, <-wait)
		return
	}
	copy(values, r.all)
	for _, wait := range r.waiting {
		wait <- r.all
	}
	r.all, r.waiting = nil, nil
	r.Unlock()
}

type answer struct {
	cuts partition.Partition
	d    Descent
	err  error
}

// overMessages runs every stage on a goroutine of its own.
func overMessages(stages int, stage func(s int, link Link)) {
	links := make([]chan []float64, stages*stages)
	for i := range links {
		links[i] = make(chan []float64, 1)
	}
	to := func(a, b int) chan []float64 { return links[a*stages+b] }
	var all sync.WaitGroup
	shared := new(reduction)
	for s := range stages {
		all.Go(func() { stage(s, channels{s, stages, to, shared}) })
	}
	all.Wait()
}

// diffuseByMessages runs Diffuse on one goroutine for each stage.
func diffuseByMessages(p Problem, present partition.Partition, o DiffusionOptions) []answer {
	answers := make([]answer, p.Stages)
	overMessages(p.Stages, func(s int, link Link) {
		a := &answers[s]
		a.cuts, a.d, a.err = Diffuse(p.Stage(present, s), link, o)
	})
	return answers
}

// diffusible returns a random problem for diffusion and present cuts for it,
// which may be over capacity.
func diffusible(rnd *rand.Rand) (Problem, partition.Partition) {
	p := Problem{Stages: 1 + rnd.IntN(8)}
	layers := p.Stages + rnd.IntN(4*p.Stages)
	speeds, memory := rnd.IntN(2) == 0, rnd.IntN(2) == 0
	for range layers {
		p.Seconds = append(p.Seconds, rnd.ExpFloat64())
		p.StaticBytes = append(p.StaticBytes, 1+rnd.Int64N(1000))
		p.ActivationBytes = append(p.ActivationBytes, rnd.Int64N(50))
		p.HeldBytes = append(p.HeldBytes, rnd.Int64N(100))
	}
	for s := range p.Stages {
		if speeds {
			p.Slow = append(p.Slow, 0.5+rnd.Float64())
			p.Fixed = append(p.Fixed, 0.2*rnd.Float64())
		}
		if memory {
			p.InFlight = append(p.InFlight, p.Stages-s)
			p.Between = append(p.Between, 1+rnd.IntN(3))
			p.Capacity = append(p.Capacity, 1000+rnd.Int64N(int64(1000*layers/p.Stages)))
		}
	}
	return p, partitiontest.Random(rnd, layers, p.Stages)
}

// TestDiffuseAgreesWithDiffusion wants every stage to find, by messages, the
// cuts and the record that the run in one process finds.
func TestDiffuseAgreesWithDiffusion(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	tooFull := 0
	for n := range 150 {
		p, present := diffusible(rnd)
		want, d, err := Diffusion(p, present, DiffusionOptions{})
		if err != nil {
			tooFull++
		}
		for s, got := range diffuseByMessages(p, present, DiffusionOptions{}) {
			if (got.err == nil) != (err == nil) || err != nil && got.err.Error() != err.Error() {
				t.Fatalf("case %d, stage %d: error %v, want %v", n, s, got.err, err)
			}
			if err == nil && !got.cuts.Equal(want.Cuts) || !reflect.DeepEqual(got.d, d) {
				t.Fatalf("case %d, stage %d: cuts %v %+v, want %v %+v", n, s, got.cuts, got.d, want.Cuts, d)
			}
		}
	}
	if tooFull == 0 || tooFull > 100 {
		t.Errorf("%d of 150 problems are too full; the test needs both kinds", tooFull)
	}
}

// TestDiffusionGolden holds the decisions of 40 random problems against
// testdata: by messages and in memory one implementation decides, so agreement
// of the two does not show that both have changed.
func TestDiffusionGolden(t *testing.T) {
	rnd := rand.New(rand.NewPCG(19, 20))
	var got strings.Builder
	for range 40 {
		p, present := diffusible(rnd)
		r, d, err := Diffusion(p, present, DiffusionOptions{Gamma: 1e-6})
		fmt.Fprintf(&got, "%v to %v, φ %.9g after %d rounds, %d sweeps, re-cut %d",
			present, r.Cuts, d.Potential[len(d.Potential)-1], d.Rounds, d.Sweeps, len(d.Squares)-1)
		if err != nil {
			fmt.Fprintf(&got, ": %v", err)
		}
		got.WriteByte('\n')
	}
	expect.Golden(t, "testdata/diffusion.txt", got.String())
}

// TestDiffusionDescends is law 7: φ never rises; once stages are within
// memory, Σ load² never rises, falls with every change, and phase 3 stops.
func TestDiffusionDescends(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	for n := range 300 {
		p, present := diffusible(rnd)
		before := objectiveOf(p.stagesAt(present))
		got, d, err := Diffusion(p, present, DiffusionOptions{Look: 1})
		for i := 1; i < len(d.Potential); i++ {
			// A round rounds each load once; φ adds P² of them.
			if slack := 1e-12 * d.Potential[0]; d.Potential[i] > d.Potential[i-1]+slack {
				t.Fatalf("case %d: potential rises from %v to %v in round %d", n, d.Potential[i-1], d.Potential[i], i)
			}
		}
		if len(d.Potential) != d.Rounds+1 {
			t.Fatalf("case %d: %d potentials for %d rounds", n, len(d.Potential), d.Rounds)
		}
		for i := 1; i < len(d.Squares); i++ {
			if d.Excess[i] > d.Excess[i-1] || d.Excess[i] == d.Excess[i-1] && d.Squares[i] > d.Squares[i-1] {
				t.Fatalf("case %d: excess %v, squares %v", n, d.Excess, d.Squares)
			}
		}
		if before.excess == 0 && err != nil {
			t.Fatalf("case %d: present cuts fit, but %v", n, err)
		}
		if before.excess == 0 && got.Bottleneck > before.worst*(1+1e-12) {
			t.Fatalf("case %d: bottleneck rises from %v to %v", n, before.worst, got.Bottleneck)
		}
	}
}

// TestRecutFallsStrictly re-cuts windows and compares Σ load² before and after
// each change without rounding.
func TestRecutFallsStrictly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	changes := 0
	for n := range 1000 {
		p, present := diffusible(rnd)
		p.Capacity = nil
		stages := p.stagesAt(present)
		first, width := rnd.IntN(max(1, p.Stages-2)), min(3, p.Stages)
		before := exactSquares(stages)
		was := cutsOf(stages)
		if recut(stages[first : first+width]) {
			changes++
			if exactSquares(stages).Cmp(before) >= 0 {
				t.Fatalf("case %d: Σ load² does not fall from %v to %v", n, was, cutsOf(stages))
			}
		} else if !cutsOf(stages).Equal(was) {
			t.Fatalf("case %d: cuts change from %v to %v unannounced", n, was, cutsOf(stages))
		}
		if recut(stages[first : first+width]) {
			t.Fatalf("case %d: a window that was just re-cut changes again", n)
		}
	}
	if changes < 100 {
		t.Errorf("only %d of 1000 windows changed", changes)
	}
}

// cutsOf returns the present cuts of stages.
func cutsOf(stages []Stage) partition.Partition {
	g := participant{stages: stages, link: inMemory{}}
	cuts, err := g.cuts()
	if err != nil {
		panic(err)
	}
	return cuts
}

// exactSquares returns Σ load² without rounding after the loads.
func exactSquares(stages []Stage) *big.Rat {
	sum := new(big.Rat)
	for s := range stages {
		load := new(big.Rat).SetFloat64(stages[s].objective().worst)
		sum.Add(sum, load.Mul(load, load))
	}
	return sum
}

// TestRecutIsExact compares one window with all ways to cut it.
func TestRecutIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	for n := range 500 {
		p, present := diffusible(rnd)
		if p.Stages > 3 {
			continue
		}
		stages := p.stagesAt(present)
		before := objectiveOf(stages)
		best := before
		everyPartition(Problem{Seconds: p.Seconds, Stages: p.Stages}, func(cuts partition.Partition, _ []float64) {
			if s := objectiveOf(p.stagesAt(cuts)); s.beats(before) && s.less(best) {
				best = s
			}
		})
		recut(stages)
		if got := objectiveOf(stages); got != best {
			t.Fatalf("case %d: %+v from %v, want %+v", n, got, present, best)
		}
	}
}

// TestDiffusionKeepsWhatIsBest wants no moves without a smaller bottleneck.
func TestDiffusionKeepsWhatIsBest(t *testing.T) {
	p := Problem{Seconds: []float64{4, 1, 1, 1, 1}, Stages: 3}
	present := partition.Partition{0, 1, 2, 5} // loads 4, 1, 3
	got, d, err := Diffusion(p, present, DiffusionOptions{})
	if err != nil || !got.Cuts.Equal(present) || !d.Kept {
		t.Errorf("cuts %v (kept %v, %v), want the present ones", got.Cuts, d.Kept, err)
	}
}

// TestPhaseOneEvensOut wants phase 1 to divide the work by the stages' speeds.
func TestPhaseOneEvensOut(t *testing.T) {
	p := Problem{Stages: 3, Slow: []float64{1, 2, 4}, Seconds: make([]float64, 70)}
	for l := range p.Seconds {
		p.Seconds[l] = 1
	}
	var d Descent
	g := participant{stages: p.stagesAt(partition.Partition{0, 1, 2, 70}), link: inMemory{}}
	expect.OK(t, g.meet())
	targets, err := g.diffuseLoads(DiffusionOptions{Gamma: 1e-9}.withDefaults(3), &d)
	expect.OK(t, err)
	for s, want := range []float64{0, 40, 60} { // 40·1 = 20·2 = 10·4
		if math.Abs(targets[s]-want) > 1e-6 {
			t.Errorf("stage %d wants to begin at %v, want %v", s, targets[s], want)
		}
	}
}
