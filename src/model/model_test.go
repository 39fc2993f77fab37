package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// small is a model of which every kind of layer and parameter is a part.
var small = Config{Blocks: 2, Hidden: 6, Heads: 2, Sequence: 5, Vocab: 11, Seed: 7}

// chain is a whole model on one device, run layer by layer.
type chain struct {
	x       *Exec
	b       *Batch   // that enters the chain
	batches []*Batch // that enter each layer
	subsets []*Subset
	inner   []*Inner
	s       *Stage
	saved   []tensor.Mem
	held    []tensor.Mem
	douts   []tensor.Mem
	tokens  []int32
	targets []int32
	also    func() float64 // is added to the sum of the losses
}

func newChain(t *testing.T, c Config, d tensor.DType) *chain {
	t.Helper()
	dev := cpu.New(device.NewWall())
	x := &Exec{Device: dev, Backend: ref.New(d), Stream: dev.NewStream(), B: 2, T: c.Sequence}
	x.Scale = 1 / float64(x.N())
	must(t, x.Reserve(c))
	s, err := NewStage(c, c.All(), dev, d)
	must(t, err)
	ch := &chain{x: x, b: &x.Full, s: s}
	for _, l := range s.Layers {
		saved, held := l.Sizes(x)
		ch.saved = append(ch.saved, alloc(t, dev, saved))
		ch.batches = append(ch.batches, ch.b)
		var subset *Subset
		if l.Selects() {
			subset = NewSubset(x, alloc(t, dev, x.SubsetBytes()), tensor.From(make([]byte, x.SubsetBytes())))
		}
		ch.subsets = append(ch.subsets, subset)
		var inner *Inner
		if l.Routes() {
			inner = NewInner(x, alloc(t, dev, x.SubsetBytes()), tensor.From(make([]byte, x.SubsetBytes())), tensor.From(make([]byte, l.RoutingBytes(x))))
		}
		ch.inner = append(ch.inner, inner)
		ch.held = append(ch.held, alloc(t, dev, held))
		ch.douts = append(ch.douts, alloc(t, dev, l.Leaves().Bytes(x, x.N())))
	}
	draw := random.Keyed(3)
	for range x.N() {
		ch.tokens = append(ch.tokens, draw.Int32N(int32(c.Vocab)))
		ch.targets = append(ch.targets, draw.Int32N(int32(c.Vocab)))
	}
	return ch
}

func alloc(t *testing.T, d device.Device, bytes int64) tensor.Mem {
	t.Helper()
	m, err := d.Alloc(bytes)
	must(t, err)
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	expect.OK(t, err)
}

// input returns what enters layer i.
func (c *chain) input(i int) tensor.Mem {
	if i == 0 {
		return tensor.Mem{}
	}
	return c.s.Layers[i-1].Output(c.x, c.batches[i-1], c.saved[i-1])
}

// dout returns the gradient of what leaves layer i.
func (c *chain) dout(i int) tensor.Mem {
	return c.douts[i].Span(0, c.s.Layers[i].Leaves().Bytes(c.x, c.batches[i].Leaves().Tokens))
}

// loss runs forward and returns the mean loss, with the weighted losses of exits' probes.
func (c *chain) loss() float64 {
	b := c.b
	for i, l := range c.s.Layers {
		if l.Routes() {
			b = c.inner[i].From(b)
		}
		if l.Selects() {
			b = c.subsets[i].From(b)
		}
		c.batches[i] = b
		l.Feed(c.x, b, c.saved[i], c.tokens, c.targets)
		if err := l.Forward(c.x, b, c.saved[i], c.input(i)); err != nil {
			panic(err)
		}
		b = b.Leaves()
	}
	sum := 0.0
	for i, l := range c.s.Layers {
		for k, r := range l.Readings() {
			if r.Name == Loss {
				sum += tensor.Of[float64](l.Reading(c.x, c.batches[i], c.saved[i], k))[0]
			}
		}
		probes, _ := c.untold(i)
		sum += probes
	}
	if c.also != nil {
		sum += c.also()
	}
	return sum * c.x.Scale
}

// gradients runs forward and backward.
func (c *chain) gradients() {
	c.loss()
	for _, l := range c.s.Layers {
		l.ZeroGradients(c.x)
	}
	for i := len(c.s.Layers) - 1; i >= 0; i-- {
		din := tensor.Mem{}
		if i > 0 {
			din = c.dout(i - 1)
		}
		if err := c.s.Layers[i].BackwardInput(c.x, c.batches[i], c.saved[i], c.held[i], c.input(i), c.dout(i), din); err != nil {
			panic(err)
		}
	}
	for i, l := range c.s.Layers {
		if err := l.BackwardWeight(c.x, c.batches[i], c.saved[i], c.held[i], c.input(i), c.dout(i)); err != nil {
			panic(err)
		}
		l.MaskGradients(c.x)
	}
}

// TestGradientOfTheWholeModel compares every gradient with the central
// difference of the loss, in float64, whatever the formats of the matrices.
func TestGradientOfTheWholeModel(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, half := range []bool{false, true} {
			for _, k := range []int{1, 2, 4} {
				for _, format := range []Format{Dense, Masked, CSR} {
					t.Run(fmt.Sprintf("tied=%v/half=%v/slices=%d/%v", tied, half, k, format), func(t *testing.T) {
						c := small
						c.Tied, c.HalfGrain, c.HeadShards = tied, half, k
						ch := newChain(t, c, tensor.F64)
						enlarge(ch.s)
						thin(t, ch.s, format)
						checkGradients(t, ch)
					})
				}
			}
		}
	}
}

// some makes the chain work on sequences of these lengths, together shorter than
// a full microbatch.
func (c *chain) some(lengths ...int) {
	offsets, positions := []int32{0}, []int32(nil)
	longest := 0
	for _, n := range lengths {
		longest = max(longest, n)
		for i := range n {
			positions = append(positions, int32(i))
		}
		offsets = append(offsets, int32(len(positions)))
	}
	c.b = &Batch{
		Tokens: len(positions), Capacity: c.x.N(), Sequences: len(lengths), Longest: longest,
		Offsets: tensor.From(offsets), Positions: tensor.From(positions),
	}
	c.tokens, c.targets = c.tokens[:len(positions)], c.targets[:len(positions)]
}

// TestBatchOfSomeTokens: passes see the tokens that are there and no others,
// whatever the capacity of their memory: gradients are those of the loss, and the
// loss is that of the sequences one by one.
func TestBatchOfSomeTokens(t *testing.T) {
	for _, slices := range []int{1, 3} {
		for _, format := range []Format{Dense, CSR} {
			c := small
			c.Tied, c.HalfGrain, c.HeadShards = true, slices > 1, slices
			ch := newChain(t, c, tensor.F64)
			enlarge(ch.s)
			thin(t, ch.s, format)
			for _, m := range ch.saved { // what is beyond the tokens must not matter
				for i := range tensor.Of[float64](m.Span(0, m.Bytes/8*8)) {
					tensor.Of[float64](m.Span(0, m.Bytes/8*8))[i] = math.NaN()
				}
			}
			ch.some(4, 1, 3)
			checkGradients(t, ch)
			want, tokens, targets, sum := ch.loss(), ch.tokens, ch.targets, 0.0
			for at, n := 0, 0; at < len(tokens); at += n {
				n = []int{4, 1, 3}[map[int]int{0: 0, 4: 1, 5: 2}[at]]
				ch.tokens, ch.targets = tokens[at:at+n], targets[at:at+n]
				ch.some(n)
				sum += ch.loss()
			}
			if math.Abs(sum-want) > 1e-12 {
				t.Errorf("%d slices, %v: loss %v, that of the sequences alone %v", slices, format, want, sum)
			}
		}
	}
}

// enlarge scales random weights up and moves constant ones, so that gradients
// are well above rounding and no parameter is at a special value.
func enlarge(s *Stage) {
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			factor, offset := 1.0, 0.1
			if p.deviation > 0 {
				factor, offset = 10, 0
			}
			for i, w := range tensor.Of[float64](p.W) {
				tensor.Of[float64](p.W)[i] = factor*w + offset
			}
		}
	}
}

// thin drops every third weight of the prunable matrices.
func thin(t *testing.T, s *Stage, format Format) {
	t.Helper()
	if format == Dense {
		return
	}
	from := 1.0
	if format == CSR {
		from = 0.1
	}
	for _, l := range s.Layers {
		keep := make(map[int]Mask)
		for j, p := range l.Params() {
			if p.Prunable() {
				keep[j] = NewMask(p)
				for i := range p.Stored() {
					if i%3 != 0 {
						keep[j].Set(i)
					}
				}
			}
		}
		must(t, l.Compress(keep, from))
		for j := range keep {
			if got := l.Params()[j].Format; got != format {
				t.Fatalf("%s: format %v, want %v", l.Params()[j].Name, got, format)
			}
		}
	}
}

// tied returns the head's copies of tied weights.
func (c *chain) tied() []*Param {
	var borrowers []*Param
	for _, t := range c.s.Config.Ties() {
		borrowers = append(borrowers, c.s.Param(t.Borrower, t.Weight))
	}
	return borrowers
}

func checkGradients(t *testing.T, ch *chain) {
	t.Helper()
	checkSomeGradients(t, ch, func(*Param) bool { return true })
}

// checkSomeGradients checks those of some parameters.
func checkSomeGradients(t *testing.T, ch *chain, of func(*Param) bool) {
	t.Helper()
	ch.gradients()
	want := make(map[*Param][]float64) // a tied matrix: the sum of both ends
	for _, l := range ch.s.Layers {
		for _, p := range l.Params() {
			want[p] = append([]float64(nil), tensor.Of[float64](p.G)...)
		}
	}
	embedding, borrowers := ch.s.Param(0, tokenWeight), ch.tied()
	for _, b := range borrowers {
		for i, g := range want[b] {
			want[embedding][b.First*b.Cols+i] += g
		}
	}
	const h = 1e-5
	for _, l := range ch.s.Layers {
		for _, p := range l.Params() {
			if slices.Contains(borrowers, p) || !of(p) {
				continue
			}
			w := tensor.Of[float64](p.W)
			for i := range w {
				if p.Format == Masked && !Mask(tensor.Of[uint64](p.Mask)).Has(i) {
					if want[p][i] != 0 {
						t.Fatalf("%s %s[%d]: gradient %v of a pruned weight", l.Name, p.Name, i, want[p][i])
					}
					continue
				}
				at := func(d float64) float64 {
					old := w[i]
					defer func() { w[i] = old }()
					w[i] += d
					for _, b := range borrowers {
						if j := i - b.First*b.Cols; p == embedding && j >= 0 && j < b.Stored() {
							other := tensor.Of[float64](b.W)
							defer func() { other[j] = old }()
							other[j] += d
						}
					}
					return ch.objective(p)
				}
				numeric := (at(h) - at(-h)) / (2 * h)
				if diff := math.Abs(numeric - want[p][i]); diff > 1e-8+1e-6*math.Abs(numeric) {
					t.Errorf("%s %s[%d]: gradient %v, central difference %v", l.Name, p.Name, i, want[p][i], numeric)
				}
			}
		}
	}
}

// TestCompress keeps what it is told, in either format, with moments.
func TestCompress(t *testing.T) {
	ch := newChain(t, small, tensor.F32)
	l := ch.s.Layers[1]
	p := l.Params()[0]
	before := append([]float32(nil), tensor.Of[float32](p.W)...)
	moments := tensor.Of[float32](p.M)
	for i := range moments {
		moments[i] = float32(i)
	}
	thin(t, &Stage{Layers: ch.s.Layers[1:2]}, Masked)
	p = l.Params()[0]
	for i, w := range tensor.Of[float32](p.W) {
		want, moment := before[i], float32(i)
		if i%3 == 0 {
			want, moment = 0, 0
		}
		if w != want || tensor.Of[float32](p.M)[i] != moment {
			t.Fatalf("masked %d: %v (moment %v), want %v (%v)", i, w, tensor.Of[float32](p.M)[i], want, moment)
		}
	}
	// Of what is left keep the even places; every row of CSR ascends.
	keep := NewMask(p)
	for i := range p.Stored() {
		if i%3 != 0 && i%2 == 0 {
			keep.Set(i)
		}
	}
	must(t, l.Compress(map[int]Mask{0: keep}, 0.5))
	p = l.Params()[0]
	if p.Format != CSR || p.NNZ != keep.Count() {
		t.Fatalf("format %v with %d values, want csr with %d", p.Format, p.NNZ, keep.Count())
	}
	rows, cols, n := tensor.Of[int32](p.RowPtr), tensor.Of[int32](p.ColIdx), 0
	for r := range p.Rows {
		for k := rows[r]; k < rows[r+1]; k++ {
			at := r*p.Cols + int(cols[k])
			if !keep.Has(at) || tensor.Of[float32](p.W)[k] != before[at] || tensor.Of[float32](p.M)[k] != float32(at) {
				t.Fatalf("csr row %d: wrong entry %d", r, k)
			}
			n++
		}
	}
	if n != p.NNZ {
		t.Errorf("%d entries in rows, want %d", n, p.NNZ)
	}
	if other := l.Params()[1]; other.Format != Masked {
		t.Errorf("%s changed its format to %v", other.Name, other.Format)
	}
}

// TestGrainsStartAlike: a block and its halves hold the same weights.
func TestGrainsStartAlike(t *testing.T) {
	half := small
	half.HalfGrain = true
	a, b := newChain(t, small, tensor.F32), newChain(t, half, tensor.F32)
	if x, y := a.loss(), b.loss(); x != y {
		t.Errorf("loss %v with whole blocks, %v with halves", x, y)
	}
	if ln := math.Log(float64(small.Vocab)); math.Abs(a.loss()-ln) > 0.1 {
		t.Errorf("initial loss %v, want about ln(vocab) = %v", a.loss(), ln)
	}
}

// TestSlicesComputeTheHead: a head in slices starts with the same weights as a
// whole one and gives the same loss and gradients but for rounding.
func TestSlicesComputeTheHead(t *testing.T) {
	want := newChain(t, small, tensor.F64)
	enlarge(want.s)
	want.gradients()
	head := want.s.Layers[headOf(small)]
	for _, n := range []int{2, 3, small.Vocab} {
		c := small
		c.HeadShards = n
		got := newChain(t, c, tensor.F64)
		enlarge(got.s)
		got.gradients()
		if x, y := got.loss(), want.loss(); math.Abs(x-y) > 1e-12 {
			t.Errorf("%d slices: loss %v, want %v", n, x, y)
		}
		for i, l := range want.s.Layers[:headOf(small)] {
			near(t, l.Name, got.s.Layers[i].g, l.g)
		}
		var weights, gradients []float64
		for _, l := range got.s.Layers[headOf(small):] {
			p := param(l, "head.weight")
			weights = append(weights, tensor.Of[float64](p.W)...)
			gradients = append(gradients, tensor.Of[float64](p.G)...)
		}
		whole := param(head, "head.weight")
		if !slices.Equal(weights, tensor.Of[float64](whole.W)) {
			t.Errorf("%d slices: other initial weights", n)
		}
		near(t, "head.weight", tensor.From(gradients), whole.G)
	}
}

// headOf returns the chain position of the head, the first of its slices.
func headOf(c Config) int {
	return slices.IndexFunc(c.Chain(), func(d Description) bool { return d.Kind == Head })
}

func param(l *Layer, name string) *Param {
	return l.Params()[slices.IndexFunc(l.Params(), func(p *Param) bool { return p.Name == name })]
}

func near(t *testing.T, name string, got, want tensor.Mem) {
	t.Helper()
	g, w := tensor.Of[float64](got), tensor.Of[float64](want)
	for i := range w {
		if len(g) != len(w) || math.Abs(g[i]-w[i]) > 1e-12 {
			t.Fatalf("%s: element %d of %d is %v, want %v of %d", name, i, len(g), g[i], w[i], len(w))
		}
	}
}

// TestFreeGivesEverythingBack: no slab is forgotten, also after compression.
func TestFreeGivesEverythingBack(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s, err := NewStage(small, small.All(), dev, tensor.F32)
	must(t, err)
	thin(t, s, CSR)
	s.Free()
	if dev.Used() != 0 {
		t.Errorf("%d bytes are still in use", dev.Used())
	}
}

// TestBytes: what layers say they need, built or not, is what one microbatch's
// way through them takes.
func TestBytes(t *testing.T) {
	tied, slices, halves := small, small, small
	tied.Tied, slices.HeadShards, halves.HalfGrain = true, 3, true
	for name, c := range map[string]Config{"small": small, "tied": tied, "slices": slices, "halves": halves} {
		ch := newChain(t, c, tensor.F32)
		ch.x.Close() // scratch is no layer's
		sum := int64(0)
		for i, l := range Outline(c, ch.x) {
			if built := ch.s.Layers[i].Bytes(ch.x); l.Bytes != built {
				t.Errorf("%s, %s: %+v before it is built, then %+v", name, l.Name, l.Bytes, built)
			}
			sum += l.Bytes.Static() + l.Bytes.Activations + l.Bytes.Held
		}
		if used := ch.x.Device.Used(); used != sum {
			t.Errorf("%s: %d bytes in use, layers need %d", name, used, sum)
		}
	}
}
