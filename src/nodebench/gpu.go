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
	Rounds int         // whose median is a figure
	Bar    *record.Bar // shows the number of measured parts; may be nil

	// Done, if not nil, is called with the figures of each part at its end.
	Done func([]Result)

	// Say, if not nil, is called with the algorithms that a library chose for products.
	Say func(string)

	// Quick measures small shapes, to check that everything runs and the numbers are right.
	// Emulated means that the device is a stand-in for a GPU; names of figures then say so. In both
	// cases figures have no bounds to reach.
	Quick, Emulated bool
}

// gpuPart is a named measurement of a GPU.
type gpuPart struct {
	name    string
	measure func(g *gpu)
}

// gpuParts lists the parts in order of measurement. First come the two yardsticks that the others
// are compared with. The others follow by importance, because the job's time may end.
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

// GPUParts returns the names of all parts, for Measure.
func GPUParts() []string {
	var names []string
	for _, p := range gpuParts {
		names = append(names, p.name)
	}
	return names
}

// Measure measures the two yardsticks, copy and gemm, then the parts named in only, or all parts if
// only is empty. Times are between events of the GPU's own stream. If a part fails, its figures are
// missing, and the error says so. If only cuSPARSE is missing, only the figures of cuSPARSE are.
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

// gpu is the state of a measurement.
type gpu struct {
	GPU
	*bench  // of the present part
	results []Result

	lacking error   // reason for the last missing figure
	copied  float64 // bytes per second that a copy reads and writes
	peak    float64 // operations per second of the large bf16 product
}

// run measures one part, with memory and a stream of its own. It then returns all memory to the
// GPU, including the device's pool.
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
	if math.IsNaN(value.median) || math.IsInf(value.median, 0) { // a yardstick failed
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

// size returns full, or quick in a quick run.
func (g *gpu) size(full, quick int) int {
	if g.Quick {
		return quick
	}
	return full
}

const (
	// warmup is the number of rounds that are not counted.
	warmup = 3
	// rampFor is how many seconds the calls run before any round. A GPU lowers its clocks while the
	// host checks numbers, and must raise them again.
	rampFor = 0.1
)

// ramp repeats the calls for rampFor seconds.
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
// returns the seconds of each call; nil if the device fails. The host does not wait between calls.
// So the host's own time is not measured, as long as the queue does not run dry.
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

// seconds returns the median seconds of each call.
func (g *gpu) seconds(calls ...func()) []float64 { return g.spans(calls...).medians() }

// copy measures copies of 1 GiB within the GPU. Read and written bytes both count.
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

// gemms measures the product of two square matrices in float32 and bf16.
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
