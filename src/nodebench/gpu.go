package nodebench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/record"
)

// GPU measures the figures of a GPU.
type GPU struct {
	Device device.Device
	F32    kernel.Backend // of that device
	BF16   kernel.Backend
	Rounds int         // that a median is taken over
	Bar    *record.Bar // shows how many parts are measured; may be nil

	// Done, if not nil, is called with the figures of a part when it has ended.
	Done func([]Result)

	// Say, if not nil, is told which algorithms a library makes products by.
	Say func(string)

	// Quick measures small shapes: whether everything runs and gives the right numbers.
	// Emulated says that the device is a stand-in for a GPU; the names of the figures say that
	// too. Neither has bounds to reach.
	Quick, Emulated bool
}

// gpuPart measures one thing of a GPU.
type gpuPart struct {
	name    string
	measure func(g *gpu)
}

// gpuParts lists the parts in the order in which they are measured: the two
// yardsticks, which the others are compared with, then by importance, since the
// time of a job may end.
var gpuParts = []gpuPart{
	{"copy", (*gpu).copy},
	{"gemm", (*gpu).gemms},
	{"step", (*gpu).step},
	{"spmm", (*gpu).spmms},
	{"products", (*gpu).products},
	{"attention", (*gpu).attention},
	{"layernorm", (*gpu).layernorm},
	{"crossentropy", (*gpu).crossEntropy},
	{"adamw", (*gpu).adamw},
	{"gelu", (*gpu).gelu},
	{"embedding", (*gpu).embedding},
	{"llama", (*gpu).llama},
	{"experts", (*gpu).experts},
}

const yardsticks = 2

// GPUParts returns the names that Measure takes.
func GPUParts() []string {
	var names []string
	for _, p := range gpuParts {
		names = append(names, p.name)
	}
	return names
}

// Measure measures the two yardsticks, copy and gemm, then the parts called
// only, all of them if there is none. Times are between events of the GPU's own
// stream. A part that fails leaves out its figures, one that lacks cuSPARSE only
// those of it, and the error says so.
func (g GPU) Measure(only []string) ([]Result, error) {
	for _, name := range only {
		if !slices.Contains(GPUParts(), name) {
			return nil, fmt.Errorf("there is no %q to measure: want some of %s", name, strings.Join(GPUParts(), ", "))
		}
	}
	all := &gpu{GPU: g}
	var failed []error
	var wanted []gpuPart
	for i, part := range gpuParts {
		if i < yardsticks || len(only) == 0 || slices.Contains(only, part.name) {
			wanted = append(wanted, part)
		}
	}
	for i, part := range wanted {
		if err := all.run(part); err != nil {
			failed = append(failed, fmt.Errorf("gpu %s: %w", part.name, err))
		}
		g.Bar.Show(int64(i+1), int64(len(wanted)))
	}
	return all.results, errors.Join(failed...)
}

// gpu is the measurement under way.
type gpu struct {
	GPU
	*bench  // of the part
	results []Result

	lacking error   // the last figure that the part has to do without
	copied  float64 // bytes per second that a copy reads and writes
	peak    float64 // operations per second of the large bf16 product
}

// run measures one part, with memory and a stream of its own, and returns all memory
// to the GPU, that of the device's pool too.
func (g *gpu) run(part gpuPart) error {
	g.bench, g.lacking = newBench(g.BF16, g.Device), nil
	defer func() {
		g.free()
		g.stream.Close()
		g.Device.Trim()
	}()
	part.measure(g)
	if g.sync(); g.err != nil {
		return g.err
	}
	g.results = append(g.results, g.bench.results...)
	if g.Done != nil {
		g.Done(g.bench.results)
	}
	return g.lacking
}

// figure appends a figure of the part.
func (g *gpu) figure(name string, value float64, unit string, reach float64, wrong int) {
	g.estimate(name, single(value), unit, reach, wrong)
}

// estimate appends a figure of the part with its quartiles.
func (g *gpu) estimate(name string, value estimate, unit string, reach float64, wrong int) {
	name = "gpu/" + name
	if g.Emulated {
		name = "emulated/" + name
	}
	if g.Quick || g.Emulated {
		reach = 0
	}
	if math.IsNaN(value.median) || math.IsInf(value.median, 0) { // of a yardstick that failed
		wrong++
	}
	g.add(name, value, unit, reach, wrong)
}

// bandwidth appends the bytes per second of a call that moves bytes bytes, their ratio to the
// bandwidth of a copy, and the call's time.
func (g *gpu) bandwidth(name string, bytes, seconds, reach float64, wrong int) {
	g.figure(name, bytes/seconds/1e9, "GB/s", 0, wrong)
	g.figure(name+"_to_copy", bytes/seconds/g.copied, "ratio", reach, wrong)
	g.figure(name+"_time", seconds*1e6, "us", 0, wrong)
}

// rate appends the operations per second of a call, their ratio to the rate of the large bf16
// product, and the call's time.
func (g *gpu) rate(name string, operations, seconds float64, wrong int) {
	g.figure(name, operations/seconds/1e12, "TFLOP/s", 0, wrong)
	g.figure(name+"_to_gemm", operations/seconds/g.peak, "ratio", 0, wrong)
	g.figure(name+"_time", seconds*1e6, "us", 0, wrong)
}

// size returns a dimension, or the one that stands for it in a quick run.
func (g *gpu) size(full, quick int) int {
	if g.Quick {
		return quick
	}
	return full
}

const (
	// warmup is how many rounds go before those that count.
	warmup = 3
	// rampFor is how many seconds of the calls go before any round: a GPU that was
	// idle while the host checked numbers first has to raise its clocks.
	rampFor = 0.1
)

// ramp makes the calls until the GPU has been busy with them for long enough.
func (g *gpu) ramp(calls []func()) {
	clock := g.Device.Clock()
	for begin := clock.Now(); g.err == nil && !g.Quick && clock.Now()-begin < rampFor; {
		for _, call := range calls {
			call()
		}
		g.err = g.stream.Sync()
	}
}

// spans enqueues the calls one after the other, in rounds, with an event between any two. It
// returns the seconds of each call, nil if the device fails. The host waits for nothing in
// between. So the host's own time does not show, as long as the queue does not run dry.
func (g *gpu) spans(calls ...func()) spans {
	g.ramp(calls)
	last := g.stream.Record(nil)
	ends := make([][]device.Event, len(calls))
	starts := make([][]device.Event, len(calls))
	for range warmup + g.Rounds {
		for i, call := range calls {
			call()
			end := g.stream.Record(nil)
			starts[i], ends[i] = append(starts[i], last), append(ends[i], end)
			last = end
		}
	}
	all := make(spans, len(calls))
	if g.err = errors.Join(g.err, g.stream.Sync()); g.err != nil {
		return all
	}
	for i := range calls {
		for round := warmup; round < len(ends[i]); round++ {
			all[i] = append(all[i], ends[i][round].Seconds()-starts[i][round].Seconds())
		}
	}
	return all
}

// seconds returns the median of the spans of each call.
func (g *gpu) seconds(calls ...func()) []float64 { return g.spans(calls...).medians() }

// copy measures copies within the GPU of a gibibyte, which is read and written.
func (g *gpu) copy() {
	n := g.size(1<<28, 1<<12)
	from, to := g.normal(n, g.F32.DType()), g.blank(n, g.F32.DType())
	seconds := g.seconds(func() { g.stream.Copy(to, from.mem) })[0]
	c := checker{unit: 0}
	for _, first := range windows(n) {
		for i, x := range g.values(to, first, min(window, n-first), g.F32.DType()) {
			c.elementwise(x, from.at(first+i), 0)
		}
	}
	g.copied = 2 * float64(from.mem.Bytes) / seconds
	g.figure("copy", g.copied/1e9, "GB/s", 0, c.wrong)
}

// gemms measures the product of two square matrices in both types.
func (g *gpu) gemms() {
	n := g.size(8192, 48)
	for _, k := range []kernel.Backend{g.F32, g.BF16} {
		x, w := g.normal(n*n, k.DType()), g.normal(n*n, k.DType())
		out := g.blank(n*n, k.DType())
		seconds := g.seconds(func() { k.MatmulForward(g.stream, out, x.mem, w.mem, none, n, n, n) })[0]
		wrong := g.sampled(out, n, n, k.DType(), func(i, j int, want *total) {
			for l := range n {
				want.add(x.at(i*n+l) * w.at(j*n+l))
			}
		})
		operations := 2 * math.Pow(float64(n), 3)
		if k == g.BF16 {
			g.peak = operations / seconds
		}
		g.figure(fmt.Sprintf("gemm_%s_%d", k.DType(), n), operations/seconds/1e12, "TFLOP/s", 0, wrong)
		g.free()
	}
}
