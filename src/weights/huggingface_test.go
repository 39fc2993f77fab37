package weights

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/files"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	expect.OK(t, err)
	return b
}

// imported returns a Hugging Face directory as a dynmo weights file, opened.
func imported(t testing.TB, dir string) *Weights {
	t.Helper()
	w, err := OpenHuggingFace(dir)
	expect.OK(t, err)
	return written(t, w)
}

// written returns weights as a dynmo weights file, opened, and closes them.
func written(t testing.TB, w *Weights) *Weights {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	expect.OK(t, files.Write(path, w.Write))
	expect.OK(t, w.Close())
	w, err := OpenWeights(path)
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, w.Close()) })
	return w
}

// Imported weights give the logits and losses of a plain float64 GPT-2 that
// reads the same numbers another way.
func TestImportedLogits(t *testing.T) {
	for _, tied := range []bool{true, false} {
		for _, prefix := range []string{"", "transformer."} {
			for _, half := range []bool{false, true} {
				for _, d := range []tensor.DType{tensor.F32, tensor.F64} {
					t.Run(fmt.Sprintf("tied=%v/prefix=%q/half=%v/%v", tied, prefix, half, d), func(t *testing.T) {
						g := newGPT2(tied, prefix)
						w := imported(t, g.directory(t))
						c := w.Config.Model
						c.HalfGrain, c.Seed = half, 3
						w, err := w.Fit(c)
						expect.OK(t, err)
						if d == tensor.F64 {
							compareLogits[float64](t, g, w, c, d, 1e-12)
						} else {
							compareLogits[float32](t, g, w, c, d, 1e-5)
						}
					})
				}
			}
		}
	}
}

// compareLogits runs model layers on the generic kernels. tolerance is
// relative to the largest logit.
func compareLogits[F float32 | float64](t *testing.T, g *gpt2, w *Weights, c model.Config, d tensor.DType, tolerance float64) {
	dev := cpu.New(device.NewWall())
	x := &model.Exec{Device: dev, Backend: ref.New(d), Stream: dev.NewStream(), B: 1, T: c.Sequence, Scale: 1}
	expect.OK(t, x.Reserve(c))
	defer x.Close()
	s, err := model.NewStage(c, c.All(), dev, d) // random weights: Load must replace each
	expect.OK(t, err)
	defer s.Free()
	tokens, targets := []int32{3, 0, 12, 7, 7, 1}, []int32{0, 12, 7, 7, 1, 5}
	var inp, entering tensor.Mem
	var saved model.Saved
	for _, l := range s.Layers {
		expect.OK(t, w.Load(l))
		saved.Kept, err = dev.Alloc(l.Sizes(x).Kept)
		expect.OK(t, err)
		defer dev.Free(saved.Kept)
		l.Feed(x, &x.Full, saved, tokens, targets)
		expect.OK(t, l.Forward(x, &x.Full, saved, inp))
		entering, inp = inp, l.Output(x, &x.Full, saved)
	}
	head := s.Layers[len(s.Layers)-1]
	param := make(map[string][]F)
	for _, p := range head.Params() {
		param[p.Name] = tensor.Of[F](p.W)
	}
	// Layer.Forward leaves gradients where the logits were: the head again.
	n, scratch := x.N(), make([]F, x.N())
	normed, got := make([]F, n*c.Hidden), make([]F, n*c.Vocab)
	ref.NormForward(normed, scratch, scratch, tensor.Of[F](entering), param["norm.weight"], param["norm.bias"], n, c.Hidden, kernel.LayerNormEps)
	matrix := param["head.weight"]
	if c.Tied {
		matrix = param["token.weight"]
	}
	ref.MatmulForward(got, normed, matrix, nil, n, c.Hidden, c.Vocab)
	want, largest, loss, worst := g.logits(tokens), 0.0, 0.0, 0.0
	for i, row := range want {
		sum := 0.0
		for v, logit := range row {
			largest, sum = max(largest, math.Abs(logit)), sum+math.Exp(logit)
			worst = max(worst, math.Abs(float64(got[i*c.Vocab+v])-logit))
		}
		loss += math.Log(sum) - row[targets[i]]
	}
	if !(worst <= tolerance*largest) {
		t.Errorf("logits differ by %v, the largest is %v", worst, largest)
	}
	if diff := math.Abs(tensor.Of[float64](head.Reading(x, &x.Full, saved, 0))[0] - loss); !(diff <= tolerance*loss*10) {
		t.Errorf("loss differs by %v from %v", diff, loss)
	}
}

// A directory that another program wrote comes back byte for byte.
func TestHuggingFaceRoundTrip(t *testing.T) {
	for _, tied := range []bool{true, false} {
		for _, prefix := range []string{"", "transformer."} {
			g := newGPT2(tied, prefix)
			dir, out := g.directory(t), filepath.Join(t.TempDir(), "new", "out")
			expect.OK(t, imported(t, dir).WriteHuggingFace(out, F32, nil))
			for _, name := range []string{"config.json", "model.safetensors"} {
				if !bytes.Equal(read(t, filepath.Join(dir, name)), read(t, filepath.Join(out, name))) {
					t.Errorf("tied %v, prefix %q: %s has changed", tied, prefix, name)
				}
			}
		}
	}
}

// Mask buffers are left out, and the order of tensors does not matter.
func TestHuggingFaceBuffers(t *testing.T) {
	g := newGPT2(true, "transformer.")
	names := g.names()
	want := g.file(names)
	for _, buffer := range []string{"h.0.attn.bias", "h.1.attn.masked_bias"} {
		g.shape[buffer], g.values[buffer] = []int{1, 1, 2, 2}, []float32{1, 0, 1, 1}
		names = append([]string{buffer}, names...)
	}
	dir, out := g.directory(t), t.TempDir()
	save(t, filepath.Join(dir, "model.safetensors"), g.file(names))
	expect.OK(t, imported(t, dir).WriteHuggingFace(out, F32, nil))
	if !bytes.Equal(read(t, filepath.Join(out, "model.safetensors")), want) {
		t.Error("the model has changed")
	}
}

// A tied head that is written out, as many programs do, is left out if it is equal to
// the embedding.
func TestHuggingFaceTiedHead(t *testing.T) {
	for _, prefix := range []string{"", "transformer."} {
		g := newGPT2(true, prefix)
		want := g.file(g.names())
		g.shape["lm_head.weight"], g.values["lm_head.weight"] = g.shape["wte.weight"], g.values["wte.weight"]
		out := t.TempDir()
		expect.OK(t, imported(t, g.directory(t)).WriteHuggingFace(out, F32, nil))
		if !bytes.Equal(read(t, filepath.Join(out, "model.safetensors")), want) {
			t.Errorf("prefix %q: the model has changed", prefix)
		}
	}
}

func TestHuggingFaceRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *gpt2)
		want   string
	}{
		{"missing", func(g *gpt2) { delete(g.shape, "h.1.ln_2.bias") }, `tensor "h.1.ln_2.bias" is missing (1 of 28 are)`},
		{"too many", func(g *gpt2) { g.shape["h.2.ln_1.bias"], g.values["h.2.ln_1.bias"] = []int{8}, make([]float32, 8) }, `tensor "h.2.ln_1.bias" is no part`},
		{"another head", func(g *gpt2) {
			g.shape["lm_head.weight"], g.values["lm_head.weight"] = g.shape["wte.weight"], slices.Clone(g.values["wte.weight"])
			g.values["lm_head.weight"][3*8+1] += 0.5
		}, `tensor "lm_head.weight" differs at byte `},
		{"a head of another shape", func(g *gpt2) {
			g.shape["lm_head.weight"], g.values["lm_head.weight"] = []int{1, 8}, make([]float32, 8)
		}, `tensor "lm_head.weight" is F32 [1 8], unlike the F32 [13 8] of tensor "wte.weight", yet the head is tied: want the two equal, or tie_word_embeddings false in config.json`},
		{"a head alone", func(g *gpt2) {
			g.shape["lm_head.weight"], g.values["lm_head.weight"] = g.shape["wte.weight"], g.values["wte.weight"]
			delete(g.shape, "wte.weight")
		}, `tensor "wte.weight" is missing`},
		{"linear, not Conv1D", func(g *gpt2) { g.shape["h.0.mlp.c_fc.weight"] = []int{32, 8} }, `tensor "h.0.mlp.c_fc.weight": F32 [32 8], want F32, BF16 or F16 [8 32]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGPT2(true, "")
			c.change(g)
			dir := g.directory(t)
			if _, err := OpenHuggingFace(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), dir) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// A default of Transformers that is not the model's is named with its field. An alias is a name of the field.
func TestHuggingFaceNamesDefaults(t *testing.T) {
	const embd = `"n_embd": 8, `
	for instead, wants := range map[string]bool{"": true, `"hidden_size": 10, `: false} {
		g := newGPT2(true, "")
		dir := g.directory(t)
		save(t, filepath.Join(dir, ConfigFile), bytes.Replace(g.config(), []byte(embd), []byte(instead), 1))
		_, err := OpenHuggingFace(dir)
		const want = ": config.json lacks n_embd, so the defaults of Transformers were taken: add the model's values"
		if err == nil || !strings.Contains(err.Error(), `want F32, BF16 or F16 [`) || strings.HasSuffix(err.Error(), want) != wants {
			t.Errorf("%q: %v", instead, err)
		}
	}
}

// Values of another type are refused, even of the same size.
func TestHuggingFaceRefusesIntegers(t *testing.T) {
	g := newGPT2(true, "")
	dir := g.directory(t)
	save(t, filepath.Join(dir, "model.safetensors"), bytes.Replace(g.file(g.names()), []byte("F32"), []byte("I32"), 1))
	if _, err := OpenHuggingFace(dir); err == nil || !strings.Contains(err.Error(), `tensor "h.0.attn.c_attn.bias": I32 [24], want F32, BF16 or F16 [24]`) {
		t.Errorf("error %v", err)
	}
}

// A dynmo weights file must name its model, and have all of its weights.
func TestOpenWeightsRefuses(t *testing.T) {
	config := string(newGPT2(true, "").config())
	for _, c := range []struct {
		name     string
		metadata map[string]string
		want     string
	}{
		{"foreign", map[string]string{"format": "pt"}, `metadata: format = "pt", want "dynmo"`},
		{"no configuration", map[string]string{"format": "dynmo"}, "metadata: config: byte 0"},
		{"prefix", map[string]string{"format": "dynmo", "config": config, "prefix": "x."}, `metadata: prefix = "x."`},
		{"no tensors", map[string]string{"format": "dynmo", "config": config}, "is missing (28 of 28 are)"},
	} {
		path := filepath.Join(t.TempDir(), "w.safetensors")
		expect.OK(t, files.Write(path, func(w io.Writer) error { return Write(w, c.metadata, nil, nil) }))
		if _, err := OpenWeights(path); err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// ownFile returns a dynmo weights file.
func ownFile(f testing.TB) []byte {
	path := filepath.Join(f.TempDir(), "w.safetensors")
	w, err := OpenHuggingFace(newGPT2(true, "").directory(f))
	expect.OK(f, err)
	expect.OK(f, files.Write(path, w.Write))
	expect.OK(f, w.Close())
	b, err := os.ReadFile(path)
	expect.OK(f, err)
	return b
}

// readAll reads every parameter.
func readAll(t *testing.T, w *Weights) {
	t.Helper()
	for _, p := range w.Config.Model.Weights() {
		if v, err := w.read(p); err != nil || int64(len(v)) != p.Bytes() {
			t.Fatalf("%s: %d bytes, %v", p.Name, len(v), err)
		}
	}
}
