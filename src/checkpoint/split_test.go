package checkpoint

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/kind/moe"
)

// split returns weights whose MLPs are cut into experts.
func split(w *Weights, s moe.Split) (*Weights, error) {
	shape, by, err := s.Plan(w.Config.Model)
	if err != nil {
		return nil, err
	}
	return w.Derive(shape, by)
}

// A dense LLaMA is cut into experts, and tokens go to all experts by equal weights. The loss is
// that of the dense model for any targets.
func TestSplitIsTheDenseModel(t *testing.T) {
	tokens := []int32{3, 0, 10, 7, 7, 1}
	for _, s := range []moe.Split{
		{Count: 4, Top: 4, Scale: 4}, {Count: 4, Top: 4, Scale: 4, InOrder: true}, {Count: 12, Top: 12, Scale: 12, Squashed: true, Seed: 5},
	} {
		f := newLlama("BF16", false, "model.", 0)
		w, err := OpenHuggingFace(f.directory(t, 0))
		expect.OK(t, err)
		w, err = split(w, s)
		expect.OK(t, err)
		w = written(t, w)
		for _, p := range w.Config.Model.Weights() {
			if w.dtype(p) != bf16 {
				t.Errorf("%s is %s, the dense model BF16", p.Name, w.dtype(p))
			}
		}
		fitted, err := w.Fit(w.Config.Model)
		expect.OK(t, err)
		for target := range int32(11) {
			targets := []int32{target, target, target, target, target, target}
			got, _ := loaded(t, fitted, w.Config.Model, tokens, targets)
			if want := f.loss(tokens, targets); !(math.Abs(got-want) <= 1e-10*want) {
				t.Errorf("%+v: loss %v of target %d, dense %v", s, got, target, want)
			}
		}
	}
}

// Seeds draw other channels and routers, equal ones the same; in order the first expert has
// the first channels.
func TestSplitSeeds(t *testing.T) {
	f := newLlama("F32", false, "model.", 0)
	dir := f.directory(t, 0)
	file := func(s moe.Split) string {
		w, err := split(imported(t, dir), s)
		expect.OK(t, err)
		var b bytes.Buffer
		expect.OK(t, w.Write(&b))
		return b.String()
	}
	s := moe.Split{Count: 3, Top: 2, Scale: 3, Deviation: 0.1, Seed: 1}
	other := s
	other.Seed = 2
	if one := file(s); one != file(s) || one == file(other) {
		t.Error("a seed gives several files, or several seeds one")
	}
	w, err := split(imported(t, dir), moe.Split{Count: 3, Top: 2, Scale: 3, InOrder: true})
	expect.OK(t, err)
	for _, p := range w.Config.Model.Weights() {
		if p.Name == "block.1/expert.1.gateup.weight" {
			got, err := w.rows(nil, p, 0, p.Shape[0])
			expect.OK(t, err)
			of := func(name string) []byte { return f.values["model.layers.1.mlp."+name+"_proj.weight"][4*16*4:][:4*16*4] }
			if want := append(bytes.Clone(of("gate")), of("up")...); !bytes.Equal(got, want) {
				t.Error("the second of three experts has not channels 4 to 7")
			}
		}
	}
}

// A split model goes out as LLaMA-MoE, and comes back as it was.
func TestSplitExports(t *testing.T) {
	w, err := OpenHuggingFace(newLlama("BF16", true, "", 0).directory(t, 5))
	expect.OK(t, err)
	w, err = split(w, moe.Split{Count: 4, Top: 2, Scale: 4, Squashed: true, Deviation: 0.02})
	expect.OK(t, err)
	w = written(t, w)
	dir, again := t.TempDir(), t.TempDir()
	expect.OK(t, w.WriteHuggingFace(dir, "", nil))
	expect.OK(t, imported(t, dir).WriteHuggingFace(again, "", nil))
	for _, name := range []string{"config.json", "model.safetensors"} {
		if !bytes.Equal(read(t, filepath.Join(dir, name)), read(t, filepath.Join(again, name))) {
			t.Errorf("%s has changed", name)
		}
	}
	if text := string(read(t, filepath.Join(dir, "config.json"))); !strings.Contains(text, `"score_scale_factor": 4.0`) || !strings.Contains(text, `"torch_dtype": "bfloat16"`) {
		t.Errorf("written: %s", text)
	}
}

func TestSplitRefuses(t *testing.T) {
	dense, mixture := imported(t, newLlama("F32", false, "model.", 0).directory(t, 0)), imported(t, newLlama("F32", false, "model.", 3).directory(t, 0))
	other := imported(t, newGPT2(true, "").directory(t))
	for _, c := range []struct {
		of   *Weights
		s    moe.Split
		want string
	}{
		{dense, moe.Split{Count: 5, Top: 1, Scale: 1}, "5 experts: want at most 32768, and a number that divides the 12 channels of an MLP"},
		{dense, moe.Split{Count: 0, Top: 1, Scale: 1}, "0 experts: want"},
		{dense, moe.Split{Count: 24, Top: 1, Scale: 1}, "24 experts: want"},
		{dense, moe.Split{Count: 4, Top: 5, Scale: 1}, "a token goes to 5 of 4 experts"},
		{dense, moe.Split{Count: 4, Top: 0, Scale: 1}, "a token goes to 0 of 4 experts"},
		{dense, moe.Split{Count: 4, Top: 1}, "scale 0: want a number from"},
		{dense, moe.Split{Count: 4, Top: 1, Scale: math.NaN()}, "scale NaN: want"},
		{dense, moe.Split{Count: 4, Top: 1, Scale: 1, Deviation: 1e300}, "deviation 1e+300: want a number from 0 to 1000"},
		{mixture, moe.Split{Count: 4, Top: 1, Scale: 1}, "a model with 3 experts in a block, want a dense one"},
		{other, moe.Split{Count: 4, Top: 1, Scale: 1}, "a model of type gpt2: want one whose MLPs are gated, as llama"},
	} {
		if _, err := split(c.of, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.s, err, c.want)
		}
	}
}
