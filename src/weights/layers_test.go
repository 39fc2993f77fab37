package weights

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/files"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// chain returns all layers of a model.
func chain(t *testing.T, c model.Config, d tensor.DType) *model.Stage {
	t.Helper()
	s, err := model.NewStage(c, c.All(), cpu.New(device.NewWall()), d)
	expect.OK(t, err)
	t.Cleanup(s.Free)
	return s
}

// Layers that are written and loaded into others make equal ones, whatever the
// grain and the slices of the head; the file's names are those of whole blocks.
func TestLayersRoundTrip(t *testing.T) {
	for _, tied := range []bool{true, false} {
		for _, half := range []bool{true, false} {
			t.Run(fmt.Sprintf("tied=%v/half=%v", tied, half), func(t *testing.T) {
				c := model.Config{Blocks: 2, Hidden: 6, Heads: 2, Sequence: 5, Vocab: 11, Seed: 7, Tied: tied, HalfGrain: half}
				if half {
					c.HeadShards = 3
				}
				from := chain(t, c, tensor.F32)
				w := fromLayers(from)
				path := filepath.Join(t.TempDir(), "weights.safetensors")
				expect.OK(t, files.Write(path, w.Write))
				f, err := Open(path)
				expect.OK(t, err)
				if !slices.ContainsFunc(f.Tensors, func(x Tensor) bool { return x.Name == "block.1/qkv.weight" }) {
					t.Errorf("names %v", f.Tensors)
				}
				w, err = f.Weights()
				expect.OK(t, err)
				defer w.Close()
				c.Seed = 8
				w, err = w.Fit(c)
				expect.OK(t, err)
				for i, l := range chain(t, c, tensor.F32).Layers {
					if hash(t, l) == hash(t, from.Layers[i]) {
						t.Errorf("%s: equal before it is loaded", l.Name)
					}
					expect.OK(t, w.Load(l))
					if hash(t, l) != hash(t, from.Layers[i]) {
						t.Errorf("%s: another after it is loaded", l.Name)
					}
				}
			})
		}
	}
}

// TestLoadShared: a replica that has some of the experts loads these and reads no other.
func TestLoadShared(t *testing.T) {
	c := model.Config{
		Family: "llama", Blocks: 2, Hidden: 6, Heads: 2, Sequence: 5, Vocab: 11, Intermediate: 8, NormEps: 1e-5, Rope: model.Rope{Base: 1e4},
		Seed: 7,
	}.With(moe.Experts{Count: 4, Top: 2})
	w := fromLayers(chain(t, c, tensor.F32))
	var read []string
	rows := w.rows
	w.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		read = append(read, p.Name)
		return rows(dst, p, lo, hi)
	}
	fresh := c.AsReplica(1, 2)
	fresh.Seed = 8
	w, err := w.Fit(fresh)
	expect.OK(t, err)
	want := chain(t, c.AsReplica(1, 2), tensor.F32)
	for i, l := range chain(t, fresh, tensor.F32).Layers {
		expect.OK(t, w.Load(l))
		if hash(t, l) != hash(t, want.Layers[i]) {
			t.Errorf("%s: another after it is loaded", l.Name)
		}
	}
	if !slices.Contains(read, "block.1/expert.2.down.weight") || slices.Contains(read, "block.1/expert.1.down.weight") {
		t.Errorf("read %q", read)
	}
}

// TestLoadBehindRouter: of a block that lets tokens pass, the experts' router is loaded, and
// its own stays as it is.
func TestLoadBehindRouter(t *testing.T) {
	w := imported(t, newLlama("F32", false, "model.", 3).directory(t, 0))
	c := w.Config.Model
	whole := chain(t, c, tensor.F64)
	c = c.With(mod.Depths{Capacity: 0.5})
	c.Seed = 9
	fresh, loaded := chain(t, c, tensor.F64), chain(t, c, tensor.F64)
	for id, l := range loaded.Layers {
		expect.OK(t, w.Load(l))
		expect.OK(t, w.Load(whole.Layers[id]))
	}
	const block = 2 // the second, which routes
	values := func(s *model.Stage, name string) []float64 {
		return tensor.Of[float64](s.Layers[block].Param("block.1/" + name).W)
	}
	for _, name := range []string{"qkv.weight", "expert.2.down.weight"} {
		if !slices.Equal(values(loaded, name), values(whole, name)) {
			t.Errorf("%s is not the file's", name)
		}
	}
	if !slices.Equal(values(loaded, "router.weight"), values(whole, "router.weight")) {
		t.Error("the experts' router is not the file's")
	}
	if !slices.Equal(values(loaded, "depths.router.weight"), values(fresh, "depths.router.weight")) {
		t.Error("the router of tokens has changed")
	}
}

// TestLlamaLayersRoundTrip: what a run's layers are written as is Hugging Face's LLaMA or
// Mixtral, and makes equal layers again.
func TestLlamaLayersRoundTrip(t *testing.T) {
	for _, experts := range []int{0, 3} {
		c := imported(t, newLlama("F32", experts == 0, "model.", experts).directory(t, 0)).Config.Model
		c.Rope = model.Rope{Base: 5e5, Scaling: model.RopeLlama3, Factor: 8, Low: 1, High: 4, Original: 8192}
		c.Seed, c.HalfGrain, c.HeadShards = 7, true, 2
		from := chain(t, c, tensor.F32)
		dir := filepath.Join(t.TempDir(), "hf")
		expect.OK(t, fromLayers(from).WriteHuggingFace(dir, "", nil))
		c.Seed = 8
		w, err := imported(t, dir).Fit(c)
		expect.OK(t, err)
		for i, l := range chain(t, c, tensor.F32).Layers {
			expect.OK(t, w.Load(l))
			if hash(t, l) != hash(t, from.Layers[i]) {
				t.Errorf("%s: another after it is loaded", l.Name)
			}
		}
	}
}

// TestLoadLeavesExits: parameters that only exits have stay as they are: no file has them.
func TestLoadLeavesExits(t *testing.T) {
	c := model.Config{Blocks: 2, Hidden: 6, Heads: 2, Sequence: 5, Vocab: 11, Tied: true}
	w := written(t, fromLayers(chain(t, c, tensor.F64)))
	c = c.With(exit.Exits{After: "1", Confidence: "classifier"})
	c.Seed = 9
	loaded, fresh := chain(t, c, tensor.F64), chain(t, c, tensor.F64)
	for i, l := range loaded.Layers {
		expect.OK(t, w.Load(l))
		for k, p := range l.Params() {
			same := slices.Equal(tensor.Of[float64](p.W), tensor.Of[float64](fresh.Layers[i].Params()[k].W))
			if keeps := l.Kind == model.Exit && !p.Borrowed(); p.Shape()[0] > 2 && len(p.Shape()) == 2 && same != keeps {
				t.Errorf("%s %s: kept %v, want %v", l.Name, p.Name, same, keeps)
			}
		}
	}
}

// Pruned weights are zero in the file, in either sparse format.
func TestPrunedLayersAreWrittenDense(t *testing.T) {
	c := model.Config{Blocks: 1, Hidden: 6, Heads: 2, Sequence: 5, Vocab: 11, Tied: true}
	for _, csrFrom := range []float64{0.1, 1} {
		s, whole := chain(t, c, tensor.F64), chain(t, c, tensor.F64)
		block := s.Layers[1]
		keep := model.NewMask(block.Params()[0])
		for i := 0; i < block.Params()[0].Stored(); i += 3 {
			keep.Set(i)
		}
		name := "block.0/" + block.Params()[0].Name
		expect.OK(t, block.Compress(map[int]model.Mask{0: keep}, csrFrom))
		w := fromLayers(s)
		loaded := chain(t, c, tensor.F64)
		expect.OK(t, written(t, w).Load(loaded.Layers[1]))
		got, before := tensor.Of[float64](loaded.Layers[1].Params()[0].W), tensor.Of[float64](whole.Layers[1].Params()[0].W)
		for i, v := range got {
			want := float64(float32(before[i]))
			if !keep.Has(i) {
				want = 0
			}
			if v != want {
				t.Fatalf("%v: %s[%d] = %v, want %v", block.Params()[0].Format, name, i, v, want)
			}
		}
	}
}

func TestLoadRefusesAnotherModel(t *testing.T) {
	w := imported(t, newGPT2(true, "").directory(t))
	good := w.Config.Model
	for _, c := range []struct {
		change func(c *model.Config)
		fits   string
		layer  int // that cannot be loaded; -1: all can
	}{
		{func(c *model.Config) { c.Blocks = 3 }, "model.blocks is 3, the weights have 2", 3},
		{func(c *model.Config) { c.Blocks, c.Sequence = 3, 7 }, "model.blocks is 3, the weights have 2; model.sequence is 7, the weights have 6 positions", 3},
		{func(c *model.Config) { c.Hidden = 16 }, "model.hidden is 16", 1},
		{func(c *model.Config) { c.Heads = 4 }, "model.heads is 4", -1},
		{func(c *model.Config) { c.Sequence = 7 }, "model.sequence is 7, the weights have 6 positions, want at most these", 0},
		{func(c *model.Config) { c.Vocab = 12 }, "model.vocab is 12, the weights have 13, want that or, to pad it, at most 1024", 3},
		{func(c *model.Config) { c.Vocab = 1025 }, "model.vocab is 1025, ", 3},
		{func(c *model.Config) { c.Tied = false }, "model.tied is false, the weights have true", 3},
	} {
		other := good
		c.change(&other)
		if _, err := w.Fit(other); err == nil || !strings.Contains(err.Error(), c.fits) {
			t.Errorf("error %v, want %q", err, c.fits)
		}
		if c.layer >= 0 {
			l := chain(t, other, tensor.F32).Layers[c.layer]
			if err := w.Load(l); err == nil || !strings.Contains(err.Error(), l.Name) {
				t.Errorf("%s: error %v", c.fits, err)
			}
		}
	}
}

// TestOtherFamily: settings that only one of two families has are no difference to name.
func TestOtherFamily(t *testing.T) {
	w := imported(t, newGPT2(true, "").directory(t))
	other := w.Config.Model
	other.Family, other.Blocks = "llama", 3
	want := fmt.Sprintf("model.family is llama, the weights have gpt2; model.blocks is 3, the weights have %d", w.Config.Model.Blocks)
	if _, err := w.Fit(other); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// fromLayers returns the weights of a stage that holds the whole chain.
func fromLayers(s *model.Stage) *Weights {
	return FromChain(s.Config, func(id int) (*model.Layer, error) { return s.Layers[id], nil }, func() {})
}

func hash(t *testing.T, l *model.Layer) [32]byte {
	t.Helper()
	sum, err := l.Hash()
	expect.OK(t, err)
	return sum
}
