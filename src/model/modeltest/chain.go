// Package modeltest runs the chain of a model layer by layer for tests. It compares the chain with
// central differences and with a model written in plain scalar code.
package modeltest

import (
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
	"math"
	"slices"
	"testing"
)

// Small is a model that has every kind of layer and parameter of GPT-2.
var Small = model.Config{Blocks: 2, Hidden: 6, Heads: 2, Sequence: 5, Vocab: 11, Seed: 7}

// Chain is a whole model on one device, run layer by layer.
type Chain struct {
	X       *model.Exec
	B       *model.Batch   // that enters the chain
	Batches []*model.Batch // that enter each layer
	Work    []model.Work   // of each layer
	S       *model.Stage
	Saved   []model.Saved
	Held    []tensor.Mem
	Douts   []tensor.Mem
	Tokens  []int32
	Targets []int32
	Also    func() float64 // is added to the sum of the losses; nil: nothing
	// Untold returns the losses of a layer that no reading tells; Objective what a parameter
	// is trained for. Nil: there are none, and the loss.
	Untold    func(layer int) float64
	Objective func(p *model.Param) float64
}

func New(t *testing.T, c model.Config, d tensor.DType) *Chain {
	t.Helper()
	dev := cpu.New(device.NewWall())
	x := &model.Exec{Device: dev, Backend: ref.New(d), Stream: dev.NewStream(), B: 2, T: c.Sequence}
	x.Scale = 1 / float64(x.N())
	expect.OK(t, x.Reserve(c))
	s, err := model.NewStage(c, c.All(), dev, d)
	expect.OK(t, err)
	ch := &Chain{X: x, B: &x.Full, S: s}
	for _, l := range s.Layers {
		sizes := l.Sizes(x)
		ch.Saved = append(ch.Saved, model.Saved{Kept: Alloc(t, dev, sizes.Kept), Again: Alloc(t, dev, sizes.Again)})
		ch.Batches = append(ch.Batches, ch.B)
		ch.Work = append(ch.Work, l.NewWork(x, &model.Heap{Device: dev}))
		ch.Held = append(ch.Held, Alloc(t, dev, sizes.Held))
		ch.Douts = append(ch.Douts, Alloc(t, dev, l.Leaves().Bytes(x, x.N())))
	}
	draw := random.Keyed(3)
	for range x.N() {
		ch.Tokens = append(ch.Tokens, draw.Int32N(int32(c.Vocab)))
		ch.Targets = append(ch.Targets, draw.Int32N(int32(c.Vocab)))
	}
	return ch
}

func Alloc(t *testing.T, d device.Device, bytes int64) tensor.Mem {
	t.Helper()
	m, err := d.Alloc(bytes)
	expect.OK(t, err)
	return m
}

// Input returns what enters layer i.
func (c *Chain) Input(i int) tensor.Mem {
	if i == 0 {
		return tensor.Mem{}
	}
	return c.S.Layers[i-1].Output(c.X, c.Batches[i-1], c.Saved[i-1])
}

// Dout returns the gradient of what leaves layer i.
func (c *Chain) Dout(i int) tensor.Mem {
	return c.Douts[i].Span(0, c.S.Layers[i].Leaves().Bytes(c.X, c.Batches[i].Leaves().Tokens))
}

// Loss runs forward and returns the mean loss, with the weighted losses of exits' probes.
func (c *Chain) Loss() float64 {
	b := c.B
	for i, l := range c.S.Layers {
		if w := c.Work[i]; w != nil {
			b = w.Enter(b)
		}
		c.Batches[i] = b
		l.Feed(c.X, b, c.Saved[i], c.Tokens, c.Targets)
		if err := l.Forward(c.X, b, c.Saved[i], c.Input(i)); err != nil {
			panic(err)
		}
		b = b.Leaves()
	}
	sum := 0.0
	for i, l := range c.S.Layers {
		for k, r := range l.Readings() {
			if r.Name == model.Loss {
				sum += tensor.Of[float64](l.Reading(c.X, c.Batches[i], c.Saved[i], k))[0]
			}
		}
		if c.Untold != nil {
			sum += c.Untold(i)
		}
	}
	if c.Also != nil {
		sum += c.Also()
	}
	return sum * c.X.Scale
}

// Gradients runs forward and backward.
func (c *Chain) Gradients() {
	c.Loss()
	for i, l := range c.S.Layers {
		l.ZeroGradients(c.X)
		if last := len(c.S.Layers) - 1; l.Traits.Learns {
			c.Work[i].(model.Learner).Learn(tensor.Of[int32](c.S.Layers[last].Likeliest(c.X, c.Batches[last], c.Saved[last])))
		}
	}
	for i := len(c.S.Layers) - 1; i >= 0; i-- {
		din := tensor.Mem{}
		if i > 0 {
			din = c.Dout(i - 1)
		}
		if err := c.S.Layers[i].BackwardInput(c.X, c.Batches[i], c.Saved[i], c.Held[i], c.Input(i), c.Dout(i), din); err != nil {
			panic(err)
		}
	}
	for i, l := range c.S.Layers {
		if err := l.BackwardWeight(c.X, c.Batches[i], c.Saved[i], c.Held[i], c.Input(i), c.Dout(i)); err != nil {
			panic(err)
		}
		l.MaskGradients(c.X)
	}
}

// Some makes the chain work on sequences of these lengths, together shorter than
// a full microbatch.
func (c *Chain) Some(lengths ...int) {
	offsets, positions := []int32{0}, []int32(nil)
	longest := 0
	for _, n := range lengths {
		longest = max(longest, n)
		for i := range n {
			positions = append(positions, int32(i))
		}
		offsets = append(offsets, int32(len(positions)))
	}
	c.B = &model.Batch{
		Tokens: len(positions), Queries: len(positions), Capacity: c.X.N(), Sequences: len(lengths), Longest: longest,
		Offsets: tensor.From(offsets), Positions: tensor.From(positions),
	}
	c.Tokens, c.Targets = c.Tokens[:len(positions)], c.Targets[:len(positions)]
}

// Enlarge scales random weights up and moves constant ones, so that gradients
// are well above rounding and no parameter is at a special value.
func Enlarge(s *model.Stage) {
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			factor, offset := 1.0, 0.1
			if p.Deviation > 0 {
				factor, offset = 10, 0
			}
			for i, w := range tensor.Of[float64](p.W) {
				tensor.Of[float64](p.W)[i] = factor*w + offset
			}
		}
	}
}

// Thin drops every third weight of the prunable matrices.
func Thin(t *testing.T, s *model.Stage, format model.Format) {
	t.Helper()
	if format == model.Dense {
		return
	}
	from := 1.0
	if format == model.CSR {
		from = 0.1
	}
	for _, l := range s.Layers {
		keep := make(map[int]model.Mask)
		for j, p := range l.Params() {
			if p.Prunable() {
				keep[j] = model.NewMask(p)
				for i := range p.Stored() {
					if i%3 != 0 {
						keep[j].Set(i)
					}
				}
			}
		}
		expect.OK(t, l.Compress(keep, from))
		for j := range keep {
			if got := l.Params()[j].Format; got != format {
				t.Fatalf("%s: format %v, want %v", l.Params()[j].Name, got, format)
			}
		}
	}
}

// Tied returns the head's copies of tied weights.
func (c *Chain) Tied() []*model.Param {
	var borrowers []*model.Param
	for _, t := range c.S.Config.Ties() {
		borrowers = append(borrowers, c.S.Param(t.Borrower, t.Weight))
	}
	return borrowers
}

func CheckGradients(t *testing.T, ch *Chain) {
	t.Helper()
	CheckSomeGradients(t, ch, func(*model.Param) bool { return true })
}

// CheckSomeGradients checks those of some parameters.
func CheckSomeGradients(t *testing.T, ch *Chain, of func(*model.Param) bool) {
	t.Helper()
	ch.Gradients()
	want := make(map[*model.Param][]float64) // a tied matrix: the sum of both ends
	for _, l := range ch.S.Layers {
		for _, p := range l.Params() {
			want[p] = append([]float64(nil), tensor.Of[float64](p.G)...)
		}
	}
	embedding, borrowers := ch.S.Param(0, model.TokenWeight), ch.Tied()
	for _, b := range borrowers {
		for i, g := range want[b] {
			want[embedding][b.First*b.Cols+i] += g
		}
	}
	const h = 1e-5
	for _, l := range ch.S.Layers {
		for _, p := range l.Params() {
			if slices.Contains(borrowers, p) || !of(p) {
				continue
			}
			w := tensor.Of[float64](p.W)
			for i := range w {
				if p.Format == model.Masked && !model.Mask(tensor.Of[uint64](p.Mask)).Has(i) {
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
					if ch.Objective != nil {
						return ch.Objective(p)
					}
					return ch.Loss()
				}
				numeric := (at(h) - at(-h)) / (2 * h)
				if diff := math.Abs(numeric - want[p][i]); diff > 1e-8+1e-6*math.Abs(numeric) {
					t.Errorf("%s %s[%d]: gradient %v, central difference %v", l.Name, p.Name, i, want[p][i], numeric)
				}
			}
		}
	}
}

// CheckBytes asserts that layers, built or not, need the memory that one microbatch's way
// through them takes. The chain has no scratch afterwards.
func (c *Chain) CheckBytes(t *testing.T) {
	t.Helper()
	c.X.Close()
	sum := int64(0)
	for i, l := range model.Outline(c.S.Config, c.X) {
		if built := c.S.Layers[i].Bytes(c.X); l.Bytes != built {
			t.Errorf("%s: %+v before it is built, then %+v", l.Name, l.Bytes, built)
		}
		sum += l.Bytes.Static() + l.Bytes.Activations + l.Bytes.Held
	}
	if used := c.X.Device.Used(); used != sum {
		t.Errorf("%d bytes in use, layers need %d", used, sum)
	}
}

// CheckWhole checks that blocks in pieces have the loss and the gradients of whole blocks.
func CheckWhole(t *testing.T, pieces, whole *Chain) {
	t.Helper()
	want := make(map[string][]float64)
	var losses []float64
	for _, ch := range []*Chain{whole, pieces} {
		ch.Gradients()
		losses = append(losses, ch.Loss())
		for _, l := range ch.S.Layers {
			for _, p := range l.Params() {
				at, got := p.Weight, tensor.Of[float64](p.G)
				if p.Borrowed() {
					at += " in " + l.Name
				}
				if ch == whole {
					want[at] = got
				}
				for k, g := range got {
					if math.Abs(g-want[at][k]) > 1e-10 {
						t.Fatalf("%s[%d]: gradient %v, of whole blocks %v", p.Weight, k, g, want[at][k])
					}
				}
			}
		}
	}
	if math.Abs(losses[1]-losses[0]) > 1e-10 {
		t.Errorf("loss %v, of whole blocks %v", losses[1], losses[0])
	}
}

// SmallLlama is a LLaMA that has every kind of layer and parameter of that family.
var SmallLlama = model.Config{
	Family: "llama", Blocks: 2, Hidden: 8, Heads: 4, KeyValueHeads: 2, Intermediate: 5, NormEps: 1e-5, Rope: model.Rope{Base: 100},
	Sequence: 5, Vocab: 11, Seed: 7,
}

// Selecting has layers before the head pass on these rows of what enters them.
type Selecting struct {
	model.Modest
	Rows map[int][]int32
}

func (*Selecting) Name() string { return "selecting" }

func (*Selecting) Phase() model.Phase { return model.CutLayers }

func (f *Selecting) Extend(_ model.Config, chain []model.Description) []model.Description {
	for id, rows := range f.Rows {
		chain[id] = chain[id].Selecting(func(_ *model.Exec, _ *model.Batch, _ tensor.Mem, room []int32) (int, error) {
			return copy(room, rows), nil
		})
	}
	return chain
}

// Read returns the reading of a name that a layer left; nil if it has none.
func (c *Chain) Read(layer int, name string) []float64 {
	l := c.S.Layers[layer]
	for i, r := range l.Readings() {
		if r.Name == name {
			return tensor.Of[float64](l.Reading(c.X, c.Batches[layer], c.Saved[layer], i))
		}
	}
	return nil
}

// Weighted returns Σ factors[k]·values[k] of the readings of a name, over layers.
func (c *Chain) Weighted(name string, factors ...float64) (sum float64) {
	for i := range c.S.Layers {
		if values := c.Read(i, name); values != nil {
			for k, factor := range factors {
				sum += factor * values[k]
			}
		}
	}
	return sum
}

// Slab returns memory of all parameters of a layer, one behind the other.
func Slab(l *model.Layer, of func(p *model.Param) tensor.Mem) (all []byte) {
	for _, p := range l.Params() {
		all = append(all, tensor.Of[byte](of(p))...)
	}
	return all
}

// SameValues reports whether elements are equal numbers; zeros may differ in sign.
func SameValues(a, b tensor.Mem, d tensor.DType) bool {
	if d == tensor.F64 {
		return slices.Equal(tensor.Of[float64](a), tensor.Of[float64](b))
	}
	return slices.Equal(tensor.Of[float32](a), tensor.Of[float32](b))
}

// Edit changes the model's extension of a type.
func Edit[T model.Extension](c *model.Config, change func(*T)) {
	e := model.KindOf[T](*c)
	change(&e)
	*c = c.With(e)
}
