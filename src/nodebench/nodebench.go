// Package nodebench measures the speed of a node. In come a kernel backend and its device. Out come
// figures; the results behind each figure are checked. A figure is a median over rounds, with its
// quartiles. Two calls are compared by alternating them. The ratio is the median of the ratios of
// pairs, so a disturbance slows both calls of a pair.
package nodebench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// tolerance is the largest |x - ref| of a correct element, in units of the sum of the absolute
// values of its terms. It is 170 roundings of float32.
const tolerance = 1e-5

// Result is one figure.
type Result struct {
	Name  string  `json:"name"`            // benchmark/figure, "spmm/forward_90"
	Value float64 `json:"value"`           // in Unit: median of the rounds; 0 if the figure is invalid
	Low   float64 `json:"low,omitempty"`   // quartiles of the rounds; 0 without rounds
	High  float64 `json:"high,omitempty"`  //
	Unit  string  `json:"unit"`            // "GFLOP/s" or "ratio"
	Reach float64 `json:"reach,omitempty"` // value to reach; 0: none
	OK    bool    `json:"ok"`              // Value >= Reach, and no element is wrong
	Clock string  `json:"clock"`           // "wall" or "virtual"
	Wrong int     `json:"wrong"`           // wrong elements of the result
	Busy  bool    `json:"busy,omitempty"`  // others used a host, so the value cannot be judged
	Machine
}

// Verdict returns INVALID for a figure with wrong elements, else BUSY, PASS or FAIL. It returns "-" if
// there is no value to reach.
func (r Result) Verdict() string {
	switch {
	case r.Wrong > 0:
		return "INVALID"
	case r.Reach == 0:
		return "-"
	case r.Busy:
		return "BUSY"
	case r.OK:
		return "PASS"
	}
	return "FAIL"
}

// MarshalJSON adds the verdict.
func (r Result) MarshalJSON() ([]byte, error) {
	type fields Result // without this method, to avoid recursion
	return json.Marshal(struct {
		fields
		Verdict string `json:"verdict"`
	}{fields(r), r.Verdict()})
}

// WriteTable writes figures as a table: first the place and time of the measurement, then a line
// for each figure. An invalid figure has no value.
func WriteTable(w io.Writer, results []Result) error {
	if len(results) > 0 {
		fmt.Fprintln(w, results[0].Machine)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tvalue\tquartiles\tunit\treach\tverdict\twrong\tclock\ton")
	for _, r := range results {
		value, quartiles, reach := fmt.Sprintf("%.3g", r.Value), "-", "-"
		if r.High > 0 {
			quartiles = fmt.Sprintf("%.3g to %.3g", r.Low, r.High)
		}
		if r.Wrong > 0 {
			value, quartiles = "-", "-"
		}
		if r.Reach > 0 {
			reach = fmt.Sprintf("%g", r.Reach)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
			r.Name, value, quartiles, r.Unit, reach, r.Verdict(), r.Wrong, r.Clock, r.Hardware())
	}
	return t.Flush()
}

var none tensor.Mem

// bench holds the device, the memory and the figures of one benchmark.
type bench struct {
	k       kernel.Backend
	dev     device.Device
	stream  device.Stream
	mem     []tensor.Mem
	err     error // the first error
	results []Result
}

func newBench(k kernel.Backend, dev device.Device) *bench {
	return &bench{k: k, dev: dev, stream: dev.NewStream()}
}

// matrix allocates n elements of the backend's type and fills them from draw.
func (b *bench) matrix(n int, draw func() float64) tensor.Mem {
	x := make([]float32, n)
	if draw != nil {
		for i := range x {
			x[i] = float32(draw())
		}
	}
	return upload(b, x)
}

// upload copies x to the device.
func upload[T tensor.Element](b *bench, x []T) tensor.Mem {
	from := tensor.From(x)
	m := b.alloc(from.Bytes)
	if !m.IsZero() {
		b.stream.Copy(m, from)
		b.sync()
	}
	return m
}

// alloc allocates memory of the device until free. It returns none on failure.
func (b *bench) alloc(bytes int64) tensor.Mem {
	m, err := b.dev.Alloc(bytes)
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return none
	}
	b.mem = append(b.mem, m)
	return m
}

// sync waits for the stream.
func (b *bench) sync() { b.err = cmp.Or(b.err, b.stream.Sync()) }

// download copies m from the device.
func (b *bench) download(m tensor.Mem) []float32 {
	x := make([]float32, m.Bytes/tensor.F32.Size())
	b.stream.Copy(tensor.From(x), m)
	b.sync()
	return x
}

// free frees all memory allocated so far.
func (b *bench) free() {
	for _, m := range b.mem {
		b.dev.Free(m)
	}
	b.mem = nil
}

// add appends a figure.
func (b *bench) add(name string, value estimate, unit string, reach float64, wrong int) {
	if wrong > 0 {
		value = estimate{}
	}
	b.results = append(b.results, Result{
		Name: name, Value: value.median, Low: value.low, High: value.high, Unit: unit, Reach: reach,
		Clock: b.dev.Clock().Kind(), Wrong: wrong, OK: wrong == 0 && value.median >= reach,
	})
}

// wrong counts the elements of got that differ from want by more than the tolerance. bound is the
// sum of the absolute values of their terms.
func wrong(got, want, bound []float32) int {
	check := checker{}
	for i := range got {
		check.within(float64(got[i]), float64(want[i]), tolerance*float64(bound[i]))
	}
	return check.wrong
}
