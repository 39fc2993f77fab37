package checkpoint

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
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Imported weights give the loss of a plain float64 LLaMA or Mixtral that reads the same
// bytes another way.
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
						if grain == "expert" {
							c.Experts.Groups = experts
						}
						w, err := w.Fit(c)
						expect.OK(t, err)
						tokens, targets := []int32{3, 0, 10, 7, 7, 1}, []int32{0, 10, 7, 7, 1, 5}
						got, want := loadedLoss(t, w, c, tokens, targets), f.loss(tokens, targets)
						if !(math.Abs(got-want) <= 1e-10*want) {
							t.Errorf("loss %v, want %v", got, want)
						}
					})
				}
			}
		}
	}
}

// loadedLoss returns the sum of the losses of tokens by layers that are loaded, on the
// generic kernels in float64.
func loadedLoss(t *testing.T, w *Weights, c model.Config, tokens, targets []int32) float64 {
	t.Helper()
	c.Sequence = len(tokens)
	dev := cpu.New(device.NewWall())
	x := &model.Exec{Device: dev, Backend: ref.New(tensor.F64), Stream: dev.NewStream(), B: 1, T: len(tokens), Scale: 1}
	expect.OK(t, x.Reserve(c))
	defer x.Close()
	var inp tensor.Mem
	loss := 0.0
	for _, l := range chain(t, c, tensor.F64).Layers {
		expect.OK(t, w.Load(l))
		bytes, _ := l.Sizes(x)
		saved, err := dev.Alloc(bytes)
		expect.OK(t, err)
		defer dev.Free(saved)
		batch := &x.Full
		if e := l.Dispatches(); e.Count > 0 {
			batch = model.NewDispatch(x, e).From(batch)
		}
		l.Feed(x, batch, saved, tokens, targets)
		expect.OK(t, l.Forward(x, batch, saved, inp))
		if l.Kind == model.Head {
			loss = tensor.Of[float64](l.Reading(x, batch, saved, 0))[0]
		}
		inp = l.Output(x, batch, saved)
	}
	return loss
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
func (f *foreign) linear(name string, x []float64) (y []float64) {
	for _, row := range f.matrix(name) {
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
	eps, base, experts := 1e-6, 1e4, len(f.matrixOr("model.layers.0.block_sparse_moe.gate.weight"))
	if experts > 0 {
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
			if experts == 0 {
				floats.Add(x[t], f.gated(at+"mlp.", "gate_proj", "up_proj", "down_proj", normed))
				continue
			}
			logits := f.linear(at+"block_sparse_moe.gate.weight", normed)
			order := []int{0, 1, 2}
			slices.SortFunc(order, func(a, b int) int { return map[bool]int{true: -1, false: 1}[logits[a] > logits[b]] })
			first, second := math.Exp(logits[order[0]]), math.Exp(logits[order[1]])
			for i, w := range []float64{first / (first + second), second / (first + second)} {
				floats.AddScaled(x[t], w, f.gated(fmt.Sprintf("%sblock_sparse_moe.experts.%d.", at, order[i]), "w1", "w3", "w2", normed))
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

// matrixOr is matrix, nothing of a tensor that is not there.
func (f *foreign) matrixOr(name string) [][]float64 {
	if f.shape[name] == nil {
		return nil
	}
	return f.matrix(name)
}

// gated returns down·(silu(gate·x)·(up·x)).
func (f *foreign) gated(at, gate, up, down string, x []float64) []float64 {
	inner := f.linear(at+gate+".weight", x)
	for i, g := range inner {
		inner[i] = g / (1 + math.Exp(-g))
	}
	floats.Mul(inner, f.linear(at+up+".weight", x))
	return f.linear(at+down+".weight", inner)
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
