package nodebench

import (
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// TestSample: figures of sampling are valid only if the text is as probable as in training. When
// the model has no more positions the session is reset.
func TestSample(t *testing.T) {
	gpt2 := model.Config{Blocks: 1, Hidden: 16, Heads: 2, Sequence: sampledTokens, Vocab: 40, Tied: true, Seed: 1}
	for _, c := range []model.Config{gpt2, mixtralOf(gpt2)} {
		testSample(t, c)
	}
}

// mixtralOf returns a LLaMA with experts in GPT-2's dimensions.
func mixtralOf(c model.Config) model.Config {
	c.Family, c.KeyValueHeads, c.Intermediate, c.NormEps, c.Rope = "llama", 1, 24, 1e-5, model.Rope{Base: 1e4}
	c = c.With(moe.Experts{Count: 4, Top: 2})
	return c
}

func testSample(t *testing.T, c model.Config) {
	for _, k := range []kernel.Backend{ref.New(tensor.F32), newSpoiled(map[kernel.Op]int{kernel.CrossEntropy: 0})} {
		dev := devcpu.New(device.NewWall())
		results, err := Sample(k, dev, "sample", c, 1<<10, 2, Rounds{Count: sampledTokens + 1})
		expect.OK(t, err)
		for _, r := range results {
			measured := r.Name == "sample/read" || r.Name == "sample/copy"
			if wrong := k.Name() == "spoiled" && !measured; (r.Wrong > 0) != wrong || (r.Value > 0) == wrong {
				t.Errorf("%s: %+v", k.Name(), r)
			}
		}
		if len(results) != 5 || dev.Used() != 0 {
			t.Errorf("%d figures, %d bytes were not freed", len(results), dev.Used())
		}
	}
}
