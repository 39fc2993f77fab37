package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// published is what Hugging Face's modules make of the weights of newLlama, by element type,
// tied embedding and experts: the loss and the norm of its gradient. The modules of
// transformers' modeling_mixtral.py (00d4b3d) and the MLP of modeling_llama.py (0022728) ran
// under PyTorch 1.13 with every float32 in them replaced by float64.
var published = map[string][2]float64{
	"F32/false/0":  {14.731857945747494, 5.255044043265391},
	"F32/false/3":  {14.263369346329528, 5.275547183560047},
	"F32/true/0":   {13.901932217974359, 5.323835833540444},
	"F32/true/3":   {16.263244025498594, 6.521613180663936},
	"BF16/false/0": {14.724009704021693, 5.230243402569673},
	"BF16/false/3": {14.264162589421062, 5.264619321001911},
	"BF16/true/0":  {13.907745586416253, 5.30675893419092},
	"BF16/true/3":  {16.247055861880163, 6.4857199445731455},
}

// Imported weights give the loss of a plain float64 LLaMA or Mixtral that reads the same bytes
// another way. The loss and its gradient are those of the published code.
func TestImportedLlama(t *testing.T) {
	for _, dtype := range []string{"F32", "BF16"} {
		for _, tied := range []bool{false, true} {
			for _, experts := range []int{0, 3} {
				for _, grain := range []string{"block", "half", "expert"} {
					t.Run(fmt.Sprintf("%s/tied=%v/experts=%d/%s", dtype, tied, experts, grain), func(t *testing.T) {
						f := newLlama(dtype, tied, "model.", experts)
						w := imported(t, f.directory(t, 5))
						c := w.Config.Model
						c.HalfGrain, c.Seed = grain == "half", 3
						if model.KindOf[moe.Experts](c).Count > 0 {
							modeltest.Edit(&c, func(k *moe.Experts) { k.Auxiliary, k.Z = 0, 0 })
						}
						if grain == "expert" && experts > 0 {
							modeltest.Edit(&c, func(k *moe.Experts) { k.Groups = experts })
						}
						w, err := w.Fit(c)
						expect.OK(t, err)
						tokens, targets := []int32{3, 0, 10, 7, 7, 1}, []int32{0, 10, 7, 7, 1, 5}
						loss, norm := loaded(t, w, c, tokens, targets)
						values := published[fmt.Sprintf("%s/%v/%d", dtype, tied, experts)]
						for _, v := range [][2]float64{{loss, f.loss(tokens, targets)}, {loss, values[0]}, {norm, values[1]}} {
							if !(math.Abs(v[0]-v[1]) <= 1e-10*v[1]) {
								t.Errorf("loss or norm of the gradient %v, want %v", v[0], v[1])
							}
						}
					})
				}
			}
		}
	}
}

// loaded loads layers and returns the sum of the losses of tokens, on the generic kernels in
// float64, and the norm of its gradient.
func loaded(t *testing.T, w *Weights, c model.Config, tokens, targets []int32) (loss, norm float64) {
	t.Helper()
	c.Sequence = len(tokens)
	dev := cpu.New(device.NewWall())
	x := &model.Exec{Device: dev, Backend: ref.New(tensor.F64), Stream: dev.NewStream(), B: 1, T: len(tokens), Scale: 1}
	expect.OK(t, x.Reserve(c))
	defer x.Close()
	room := func(bytes int64) tensor.Mem {
		m, err := dev.Alloc(bytes)
		expect.OK(t, err)
		t.Cleanup(func() { dev.Free(m) })
		return m
	}
	layers := chain(t, c, tensor.F64).Layers
	batches, saved, outs := make([]*model.Batch, len(layers)), make([]model.Saved, len(layers)), make([]tensor.Mem, len(layers)+1)
	for i, l := range layers {
		expect.OK(t, w.Load(l))
		l.ZeroGradients(x)
		saved[i], batches[i] = model.Saved{Kept: room(l.Sizes(x).Kept)}, &x.Full
		if w := l.NewWork(x, &model.Heap{Device: x.Device}); w != nil {
			batches[i] = w.Enter(batches[i])
		}
		l.Feed(x, batches[i], saved[i], tokens, targets)
		expect.OK(t, l.Forward(x, batches[i], saved[i], outs[i]))
		if l.Kind == model.Head {
			loss = tensor.Of[float64](l.Reading(x, batches[i], saved[i], 0))[0]
		}
		outs[i+1] = l.Output(x, batches[i], saved[i])
	}
	gradients := map[string][]float64{} // a tied matrix has one sum
	var dout tensor.Mem
	for i, l := range slices.Backward(layers) {
		held, din := room(l.Sizes(x).Held), tensor.Mem{}
		if i > 0 {
			din = room(layers[i-1].Leaves().Bytes(x, x.N()))
		}
		expect.OK(t, l.BackwardInput(x, batches[i], saved[i], held, outs[i], dout, din))
		expect.OK(t, l.BackwardWeight(x, batches[i], saved[i], held, outs[i], dout))
		dout = din
		for _, p := range l.Params() {
			if gradients[p.Weight] == nil {
				gradients[p.Weight] = make([]float64, p.Stored())
			}
			floats.Add(gradients[p.Weight], tensor.Of[float64](p.G))
		}
	}
	for _, g := range gradients {
		norm += floats.Dot(g, g)
	}
	return loss, math.Sqrt(norm)
}

// matrix returns the rows of a tensor as numbers.
func (f *foreign) matrix(name string) [][]float64 {
	values, shape := f.values[name], f.shape[name]
	cols := shape[len(shape)-1]
	var rows [][]float64
	for i := range len(values) / f.size() {
		var bits uint32
		if f.dtype == "F32" {
			bits = binary.LittleEndian.Uint32(values[4*i:])
		} else {
			bits = uint32(binary.LittleEndian.Uint16(values[2*i:])) << 16
		}
		if i%cols == 0 {
			rows = append(rows, nil)
		}
		rows[i/cols] = append(rows[i/cols], float64(math.Float32frombits(bits)))
	}
	return rows
}

func (f *foreign) size() int {
	if f.dtype == "F32" {
		return 4
	}
	return 2
}

// linear returns W·x.
func (f *foreign) linear(name string, x []float64) []float64 { return product(f.matrix(name), x) }

func product(rows [][]float64, x []float64) (y []float64) {
	for _, row := range rows {
		y = append(y, floats.Dot(row, x))
	}
	return y
}

func (f *foreign) norm(name string, eps float64, x []float64) []float64 {
	y := slices.Clone(x)
	floats.Scale(1/math.Sqrt(floats.Dot(x, x)/float64(len(x))+eps), y)
	floats.Mul(y, f.matrix(name)[0])
	return y
}

// loss computes the sum of the losses of tokens in float64 by the plainest means, as
// Hugging Face's modeling_llama.py and modeling_mixtral.py define them: rotate-half, keys
// and values shared by groups, softmax over all experts, then the top two renormalised.
func (f *foreign) loss(tokens, targets []int32) float64 {
	const heads, size = 4, 4
	eps, base := 1e-6, 1e4
	if f.config == tinyMixtral {
		eps, base = 1e-5, 1e6
	}
	table := f.matrix("model.embed_tokens.weight")
	var x [][]float64
	for _, token := range tokens {
		x = append(x, slices.Clone(table[token]))
	}
	for b := range 2 {
		at := fmt.Sprintf("model.layers.%d.", b)
		var q, k, v [][]float64
		for t := range x {
			normed := f.norm(at+"input_layernorm.weight", eps, x[t])
			q = append(q, rotated(f.linear(at+"self_attn.q_proj.weight", normed), size, t, base))
			k = append(k, rotated(f.linear(at+"self_attn.k_proj.weight", normed), size, t, base))
			v = append(v, f.linear(at+"self_attn.v_proj.weight", normed))
		}
		shared := heads * size / len(k[0])
		for t := range x {
			var out []float64
			for h := range heads {
				cut := func(row []float64, h int) []float64 { return row[h*size:][:size] }
				weights, taken := make([]float64, t+1), make([]float64, size)
				for s := range weights {
					weights[s] = math.Exp(floats.Dot(cut(q[t], h), cut(k[s], h/shared)) / math.Sqrt(size))
				}
				for s, w := range weights {
					floats.AddScaled(taken, w/floats.Sum(weights), cut(v[s], h/shared))
				}
				out = append(out, taken...)
			}
			floats.Add(x[t], f.linear(at+"self_attn.o_proj.weight", out))
			normed := f.norm(at+"post_attention_layernorm.weight", eps, x[t])
			if f.config == tinyLlama {
				floats.Add(x[t], f.gated(at+"mlp.", "gate_proj", "up_proj", "down_proj", normed))
				continue
			}
			logits := f.scores(at, normed)
			order := []int{0, 1, 2}
			slices.SortFunc(order, func(a, b int) int { return map[bool]int{true: -1, false: 1}[logits[a] > logits[b]] })
			first, second := math.Exp(logits[order[0]]), math.Exp(logits[order[1]])
			for i, w := range []float64{first / (first + second), second / (first + second)} {
				floats.AddScaled(x[t], w*f.scale(), f.expert(at, order[i], normed))
			}
		}
	}
	head := "lm_head.weight"
	if f.tied {
		head = "model.embed_tokens.weight"
	}
	loss := 0.0
	for t := range x {
		logits := f.linear(head, f.norm("model.norm.weight", eps, x[t]))
		loss += floats.LogSumExp(logits) - logits[targets[t]]
	}
	return loss
}

// gated returns down·(silu(gate·x)·(up·x)).
func (f *foreign) gated(at, gate, up, down string, x []float64) []float64 {
	return gatedBy(f.matrix(at+gate+".weight"), f.matrix(at+up+".weight"), f.matrix(at+down+".weight"), x)
}

func gatedBy(gate, up, down [][]float64, x []float64) []float64 {
	inner := product(gate, x)
	for i, g := range inner {
		inner[i] = g / (1 + math.Exp(-g))
	}
	floats.Mul(inner, product(up, x))
	return product(down, inner)
}

// rotated turns the halves of each head of a row at a position.
func rotated(row []float64, size, position int, base float64) []float64 {
	out := slices.Clone(row)
	for head := 0; head < len(row); head += size {
		for i := range size / 2 {
			sin, cos := math.Sincos(float64(position) * math.Pow(base, -2*float64(i)/float64(size)))
			a, b := row[head+i], row[head+i+size/2]
			out[head+i], out[head+i+size/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return out
}
