package model

import (
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
	work    []Work   // of each layer
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
		ch.work = append(ch.work, l.NewWork(x, &Heap{Device: dev}))
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
		if w := c.work[i]; w != nil {
			b = w.Enter(b)
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
		Tokens: len(positions), Queries: len(positions), Capacity: c.x.N(), Sequences: len(lengths), Longest: longest,
		Offsets: tensor.From(offsets), Positions: tensor.From(positions),
	}
	c.tokens, c.targets = c.tokens[:len(positions)], c.targets[:len(positions)]
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
	embedding, borrowers := ch.s.Param(0, TokenWeight), ch.tied()
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
