package nodebench

import (
	"math"

	"dynmo/src/random"
	"dynmo/src/tensor"
)

// period is the number of elements after which an operand repeats. It is prime, so that rows
// differ, and small, so that the host draws the numbers fast.
const period = 1<<20 + 7

// operand is device memory of random numbers that the host knows.
type operand struct {
	mem      tensor.Mem
	block    []float32 // element i is block[i % len(block)]; nil: unknown
	elements tensor.DType
}

func (o operand) at(i int) float64 { return float64(o.block[i%len(o.block)]) }

// normal returns n standard normal numbers of a type. Each call draws other numbers.
func (g *gpu) normal(n int, d tensor.DType) operand {
	draw := random.Keyed(uint64(len(g.mem)), uint64(n)).NormFloat64
	return g.drawn(n, d, draw)
}

// drawn returns n numbers of a type, made by draw.
func (g *gpu) drawn(n int, d tensor.DType, draw func() float64) operand {
	block := make([]float32, min(n, period))
	for i := range block {
		if block[i] = float32(draw()); d == tensor.BF16 {
			block[i] = tensor.FromBF16(tensor.ToBF16(block[i]))
		}
	}
	return operand{g.repeated(block, n, d), block, d}
}

// blank returns memory for n numbers of a type, filled with NaN.
func (g *gpu) blank(n int, d tensor.DType) tensor.Mem {
	return g.repeated([]float32{float32(math.NaN())}, n, d)
}

// repeated returns n numbers of a type that repeat block.
func (g *gpu) repeated(block []float32, n int, d tensor.DType) tensor.Mem {
	bytes := int64(n) * d.Size()
	m := g.alloc(bytes)
	if m.IsZero() {
		return none
	}
	source := tensor.From(block)
	if d == tensor.BF16 {
		halves := make([]uint16, len(block))
		for i, x := range block {
			halves[i] = tensor.ToBF16(x)
		}
		source = tensor.From(halves)
	}
	have := source.Bytes
	g.stream.Copy(m.Span(0, have), source)
	for have < bytes {
		more := min(have, bytes-have)
		g.stream.Copy(m.Span(have, more), m.Span(0, more))
		have += more
	}
	return m
}

// values reads count numbers of a type from element first on.
func (g *gpu) values(m tensor.Mem, first, count int, d tensor.DType) []float64 {
	x := make([]float64, count)
	from := m.Span(int64(first)*d.Size(), int64(count)*d.Size())
	switch d {
	case tensor.BF16:
		decode(g.bench, x, from, tensor.FromBF16)
	case tensor.F64:
		decode(g.bench, x, from, func(x float64) float64 { return x })
	default:
		decode(g.bench, x, from, func(x float32) float32 { return x })
	}
	return x
}

// decode sets x to the numbers in m.
func decode[T tensor.Element, F float32 | float64](b *bench, x []float64, m tensor.Mem, number func(T) F) {
	host := make([]T, len(x))
	b.stream.Copy(tensor.From(host), m)
	b.sync()
	for i := range x {
		x[i] = float64(number(host[i]))
	}
}

// window is how many elements are checked in one place.
const window = 1024

// windows returns the first elements of the windows to check among n elements: at both ends and in
// between.
func windows(n int) []int {
	return spread(max(1, n-window+1), 5)
}

// spread returns count indices below n, including the first and the last, or all indices if n is
// smaller.
func spread(n, count int) []int {
	count = min(n, count)
	indices := make([]int, count)
	for i := range indices {
		indices[i] = i * (n - 1) / max(1, count-1)
	}
	return indices
}

const (
	// exactly is the largest error of a float32 result, in units of the sum of the absolute values
	// of its terms. It is twenty times the largest error seen in sums of thousands of random terms.
	// It is a fifth of the error if operands are rounded to TF32.
	exactly = 2e-6
	// halfUnit is the relative error of two roundings to bfloat16.
	halfUnit = 1.0 / 256
)

// unit returns the largest relative error of a result that is rounded to a type.
func unit(d tensor.DType) float64 {
	if d == tensor.BF16 {
		return halfUnit
	}
	return 0
}

// total is a sum in float64.
type total struct {
	sum      float64
	absolute float64 // of the absolute values of the terms
}

func (t *total) add(term float64) {
	t.sum += term
	t.absolute += math.Abs(term)
}

// checker counts wrong results of a type with the relative error unit.
type checker struct {
	unit  float64
	wrong int
}

func (c *checker) within(got, want, limit float64) {
	if !(math.Abs(got-want) <= limit) { // NaN is wrong
		c.wrong++
	}
}

// elementwise checks a result that depends on few numbers. most is the largest number added up in
// it.
func (c *checker) elementwise(got, want, most float64) {
	c.within(got, want, (tolerance+c.unit)*max(math.Abs(want), most))
}

// sampled counts the wrong results in out (rows, cols) of a type, at elements (i, j) spread over
// out. add adds the products of an element to want.
func (g *gpu) sampled(out tensor.Mem, rows, cols int, d tensor.DType, add func(i, j int, want *total)) int {
	c := checker{unit: unit(d)}
	for _, i := range spread(rows, 16) {
		got := g.values(out, i*cols, cols, d)
		for _, j := range spread(cols, 64) {
			var want total
			add(i, j, &want)
			c.sum(got[j], want)
		}
	}
	return c.wrong
}

// sum checks a sum of many products of operands.
func (c *checker) sum(got float64, want total) {
	c.within(got, want.sum, exactly*want.absolute+c.unit*math.Abs(want.sum))
}
