package profile

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/trace"
)

// ranks is layers of known seconds on stages of known slowness, and the estimator
// that watches them.
type ranks struct {
	estimator
	seconds []float64
	cuts    partition.Partition
	slow    []float64
	noise   float64 // one-sided, of single passes
	jitter  float64 // log-normal, of all passes of a rank's step
	frozen  int     // layers without backwards
	steps   uint64
}

// run runs steps and returns the estimate after the last. changed says that costs
// change before the first.
func (r *ranks) run(steps int, changed bool) cost.Estimate {
	const microbatches = 16
	var out cost.Estimate
	owners := partition.Line(len(r.cuts) - 1).Owners(r.cuts)
	for range steps {
		draw := random.Keyed(7, r.steps)
		t := cost.Table{Layers: make([]cost.Layer, len(r.seconds))}
		values := make([]value, len(r.seconds))
		slow := slices.Clone(r.slow)
		for stage := range slow {
			if r.jitter > 0 {
				slow[stage] *= math.Exp(r.jitter * draw.NormFloat64())
			}
		}
		for l, s := range r.seconds {
			t.Layers[l].NonZeros = int64(1e6 * s) // layers of equal seconds have one structure
			row := make([]cost.Stage, microbatches)
			for m := range row {
				pass := func() float64 { return s / 3 * slow[owners[l]] * (1 + r.noise*draw.ExpFloat64()) }
				row[m].Forward = pass()
				if l >= r.frozen {
					row[m].Input, row[m].Weight = pass(), pass()
				}
			}
			values[l], _ = evaluate(row, 0, nil)
		}
		out = r.observe(cost.Measurement{Table: t}, values, owners, changed)
		changed = false
		r.steps++
	}
	return out
}

func watched(noise float64) *ranks {
	return &ranks{
		seconds: []float64{1, 2, 3, 4, 4, 3, 2, 1}, cuts: partition.Partition{0, 2, 4, 6, 8},
		slow: []float64{1, 1, 1, 1}, noise: noise,
	}
}

// check compares what layers are taken to cost with the truth: how many times
// more, beside the first layer, since noise adds to all alike.
func (r *ranks) check(t *testing.T, when string, e cost.Estimate, slow []float64, within float64) {
	t.Helper()
	for l, layer := range e.Layers {
		got, want := layer.Seconds()/e.Layers[0].Seconds(), r.seconds[l]/r.seconds[0]
		if math.Abs(got/want-1) > within {
			t.Errorf("%s: layer %d costs %.3f times the first, want %v", when, l, got, want)
		}
	}
	if slow == nil && e.Slow != nil {
		t.Errorf("%s: slow %v, want none", when, e.Slow)
	}
	for s := range slow {
		if len(e.Slow) != len(slow) || math.Abs(e.Slow[s]/slow[s]-1) > within {
			t.Errorf("%s: slow %v, want %v", when, e.Slow, slow)
			break
		}
	}
}

func TestEstimateWithoutNoise(t *testing.T) {
	r := watched(0)
	e := r.run(1, false)
	r.check(t, "after a step", e, nil, 1e-12)
	if !e.Sure() {
		t.Errorf("deviations %v and %v of what is known", e.Layer, e.Stage)
	}
}

// TestEstimateDeviations: the estimated deviation falls with the steps. The differences of alike
// layers from their mean are as large as the deviation says.
func TestEstimateDeviations(t *testing.T) {
	for _, steps := range []int{1, 4, 32} {
		var off, told []float64
		for seed := range uint64(30) {
			r := watched(0.3)
			r.seconds, r.steps = []float64{1, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07}, 1000*seed
			e := r.run(steps, false)
			mean := 0.0
			for l := range e.Layers {
				mean += e.Layers[l].Seconds() / r.seconds[l] / 8
			}
			for l := range e.Layers {
				off = append(off, e.Layers[l].Seconds()/r.seconds[l]/mean-1)
				told = append(told, e.Layer[l])
			}
		}
		square := 0.0
		for _, x := range off {
			square += x * x / float64(len(off))
		}
		slices.Sort(told)
		if middle := told[len(told)/2]; !(math.Sqrt(square) < 1.5*middle && middle < 2.5*math.Sqrt(square)) {
			t.Errorf("%d steps: layers are off by %.4f, told is %.4f", steps, math.Sqrt(square), middle)
		}
	}
}

// TestEstimateShares: layers of one structure share their measurements.
func TestEstimateShares(t *testing.T) {
	r := watched(0.3)
	r.seconds = slices.Repeat([]float64{2}, 8)
	e := r.run(2, false)
	r.check(t, "alike", e, nil, 0.02)
	if alone := 0.3 / math.Sqrt(16); e.Layer[3] > alone/2 {
		t.Errorf("deviation %v of eight layers together, %v of one", e.Layer[3], alone)
	}
}

// TestDisturbanceLeavesNoTrace: a rank that is slower for up to 20 steps is neither
// slow nor are its layers costly, whenever that begins.
func TestDisturbanceLeavesNoTrace(t *testing.T) {
	r := watched(0.05)
	r.run(3, false)
	for range 3 {
		r.slow[1] = 2.5
		r.check(t, "disturbed", r.run(20, false), nil, 0.03)
		r.slow[1] = 1
		r.check(t, "after that", r.run(5, false), nil, 0.03)
	}
}

// TestSlowRankIsFound: a rank that stays slower is slow, not its layers, and no longer
// once it has recovered.
func TestSlowRankIsFound(t *testing.T) {
	r := watched(0.05)
	r.run(10, false)
	r.slow[2] = 1.5
	r.check(t, "slower", r.run(patience+1, false), []float64{1, 1, 1.5, 1}, 0.03)
	r.check(t, "the model changed", r.run(5, true), []float64{1, 1, 1.5, 1}, 0.03)
	r.slow[2] = 1
	r.check(t, "recovered", r.run(3, false), nil, 0.03)
}

// TestSlowRankFromTheStart: where a rank has never been faster, layers that move tell.
func TestSlowRankFromTheStart(t *testing.T) {
	r := watched(0.05)
	r.slow[1] = 2
	r.run(patience, false)
	r.cuts = partition.Partition{0, 3, 4, 6, 8}
	r.check(t, "moved", r.run(settled, false), []float64{1, 2, 1, 1}, 0.03)
}

// TestDoubtfulWhileDisturbed: what layers cost is uncertain on a rank that was
// disturbed when they changed.
func TestDoubtfulWhileDisturbed(t *testing.T) {
	r := watched(0.05)
	r.run(10, false)
	r.slow[1] = 2
	r.run(2, false)
	if e := r.run(3, true); len(e.Doubt) != 4 || math.Abs(e.Doubt[1]-0.5) > 0.05 || e.Doubt[0] != 0 {
		t.Errorf("doubts %v, want half for stage 1", e.Doubt)
	}
	r.slow[1] = 1
	e := r.run(2, false)
	r.check(t, "over", e, nil, 0.03)
	if e.Doubt != nil || e.Stage[1] > 0.1 {
		t.Errorf("doubts %v, deviations %v once it is over", e.Doubt, e.Stage)
	}
}

// TestFrozenCostsNothingAtOnce: passes that are left out cost nothing. The other passes cost the
// same as before.
func TestFrozenCostsNothingAtOnce(t *testing.T) {
	r := watched(0.3)
	before := r.run(20, false)
	r.frozen = 2
	after := r.run(1, false)
	for l := range 2 {
		if got := after.Layers[l]; got.BackwardInput != 0 || got.BackwardWeight != 0 || math.Abs(got.Forward/before.Layers[l].Forward-1) > 0.02 {
			t.Errorf("layer %d: %v, want the forward of %v alone", l, got.Stage(), before.Layers[l].Stage())
		}
	}
}

// TestThawedCostsWhatItDid: passes that come back have their earlier cost at once, however long
// they were left out, though a single step says little.
func TestThawedCostsWhatItDid(t *testing.T) {
	for _, steps := range []int{10, 3 * window} {
		r := watched(0.3)
		before := r.run(20, false)
		r.frozen = 2
		r.run(steps, false)
		r.frozen, r.noise = 0, 3 // the step of the thaw is disturbed
		after := r.run(1, false)
		for l := range 2 {
			if got, want := after.Layers[l], before.Layers[l]; math.Abs(got.BackwardInput/want.BackwardInput-1) > 0.05 || math.Abs(got.BackwardWeight/want.BackwardWeight-1) > 0.05 {
				t.Errorf("frozen for %d steps: layer %d: %v, want %v", steps, l, got.Stage(), want.Stage())
			}
		}
		r.noise = 0.3
		r.run(2*window, false)
		for _, list := range r.ranked[0] {
			if len(list) != window {
				t.Errorf("%d samples are kept, want %d", len(list), window)
			}
		}
	}
}

// TestDriftIsFollowed: a layer whose cost rises slowly is not seen as it was long ago.
func TestDriftIsFollowed(t *testing.T) {
	r := watched(0.1)
	r.run(64, false)
	var e cost.Estimate
	for range 100 {
		r.seconds[5] *= 1.004
		e = r.run(1, false)
	}
	if off := e.Layers[5].Seconds() / e.Layers[2].Seconds() * 3 / r.seconds[5]; off < 0.9 {
		t.Errorf("%.3f of what the layer costs by now", off)
	}
}

// TestDeviationsOfFewSteps: the deviation of layers that have moved, or whose backwards ended,
// follows from the steps since then.
func TestDeviationsOfFewSteps(t *testing.T) {
	const layer = 3
	for _, test := range []struct {
		name   string
		steps  int
		change func(*ranks)
	}{
		{"moved", settled, func(r *ranks) { r.cuts = partition.Partition{0, 2, 3, 6, 8} }},
		{"moved and settled", 4 * settled, func(r *ranks) { r.cuts = partition.Partition{0, 2, 3, 6, 8} }},
		{"its stage frozen", 1, func(r *ranks) { r.frozen = 4 }},
	} {
		squares, told, n := 0.0, 0.0, 60
		for seed := range uint64(n) {
			r := watched(0.05)
			r.jitter, r.steps = 0.04, 1000*seed
			r.seconds = []float64{1, 2, 3, 4.2, 4.1, 3.1, 2.1, 1.1} // no two alike
			r.run(64, false)
			test.change(r)
			e := r.run(test.steps, false)
			at := partition.Line(4).Owners(r.cuts)[layer]
			share := 1.0
			if layer < r.frozen {
				share = 1.0 / 3
			}
			off := e.Layers[layer].Seconds()/(share*r.seconds[layer]) - 1.0
			for l := range e.Layers[6:] { // what all have in common does not matter
				off -= (e.Layers[6+l].Seconds()/r.seconds[6+l] - 1) / 2
			}
			squares += off * off
			told += math.Hypot(e.Layer[layer], e.Stage[at])
		}
		if rms, mean := math.Sqrt(squares/float64(n)), told/float64(n); rms > 2*mean || mean > 4*rms {
			t.Errorf("%s, %d steps: off by %.4f, told is %.4f", test.name, test.steps, rms, mean)
		}
	}
}

// TestFreezingKeepsTheOthers: what is known of a layer outlasts the freezing of
// another one of its stage.
func TestFreezingKeepsTheOthers(t *testing.T) {
	r := watched(0.05)
	before := r.run(40, false).Layer[3]
	r.frozen = 3
	if after := r.run(1, false).Layer[3]; after > 1.2*before {
		t.Errorf("deviation %.4f, before the freezing %.4f", after, before)
	}
}

// TestSpreadFades: where the model changes all the time, one disturbed step does not
// make layers uncertain for good.
func TestSpreadFades(t *testing.T) {
	r := watched(0.05)
	r.run(2, true)
	before := r.run(2, true).Layer[3]
	r.noise = 1
	r.run(1, true)
	r.noise = 0.05
	var after float64
	for range 15 {
		after = r.run(2, true).Layer[3]
	}
	if after > 1.5*before {
		t.Errorf("deviation %.4f, before the disturbance %.4f", after, before)
	}
}

// TestMovedWhileCostsDrift: a layer has moved to a disturbed rank. Its cost does not become 0
// when its steps on the old rank no longer count.
func TestMovedWhileCostsDrift(t *testing.T) {
	r := watched(0.05)
	for step := range 70 {
		r.seconds[0] *= 1.004
		if step == 40 {
			r.cuts, r.slow[1] = partition.Partition{0, 2, 5, 6, 8}, 2.5
		}
		if step == 60 {
			r.slow[1] = 1
		}
		for l, layer := range r.run(1, false).Layers {
			if layer.Seconds() == 0 {
				t.Fatalf("step %d: layer %d costs nothing", step, l)
			}
		}
	}
}

// TestReportRoundTrip: all that a report has arrives, bit for bit, and nothing
// else.
func TestReportRoundTrip(t *testing.T) {
	names := []dynamic.Counts{{Name: "left"}, {Name: "tokens"}}
	full := report{
		own:       Own{Memory: trace.Memory{Resident: 1 << 52, Kept: -3}, Joules: -1, Balancing: 1.0 / 3},
		summaries: []trace.Summary{{Busy: []float64{2}, Start: math.Inf(1), End: math.Inf(-1), Finish: 4}, {Busy: []float64{5}}},
		layers: []layerReport{
			{id: 7, cost: cost.Layer{Forward: 1, BackwardInput: 2, BackwardWeight: 3, NonZeros: 4, Output: 5, Bytes: cost.Bytes{
				Parameters: 6, Gradients: 7, Optimizer: 8, Workspace: 9, Activations: 10, Held: 11,
			}}, samples: []cost.Stage{{Forward: 0.1, Input: 0.2, Weight: 0.3}, {}}},
			{id: 8},
		},
		counts:       []cost.CountSum{{Name: "tokens", Layer: 1, Microbatches: 2, Values: []int64{1 << 62, -1}, Peaks: 5}, {Name: "left"}},
		instructions: []trace.Span{{Op: trace.F, Layer: -1, Microbatch: 70000, Start: 0.1, End: 1.0 / 3}, {Op: trace.B, Layer: -1, Chunk: 2, Start: 1e9, End: 1e9 + 1e-6}},
	}
	for _, want := range []report{full, {}} {
		got := unpack(names, pack(names, want, (*message).report), (*message).report)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(report{}, layerReport{}, value{})); diff != "" {
			t.Error(diff)
		}
	}
}

// TestAnonymousSeesMemory: pages count once they are touched, and no more once
// they are given back.
func TestAnonymousSeesMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc/self/status")
	}
	const size, slack = 64 << 20, 16 << 20
	before := Anonymous()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	expect.OK(t, err)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	if got := Anonymous() - before; got < size-slack || got > size+slack {
		t.Errorf("%d bytes more with %d touched", got, size)
	}
	expect.OK(t, unix.Munmap(b))
	if got := Anonymous() - before; got > slack {
		t.Errorf("%d bytes more after all were given back", got)
	}
}
