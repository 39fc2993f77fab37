package launch

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// weightsOf returns a weights file of the model, drawn with another seed.
func weightsOf(t *testing.T, c config.Config) string {
	t.Helper()
	c.Run.Seed = 99
	shape := model.FromConfig(c)
	whole, err := model.NewStage(shape, shape.All(), cpu.New(device.NewWall()), tensor.F32)
	expect.OK(t, err)
	w := weights.FromChain(shape, func(id int) (*model.Layer, error) { return whole.Layers[id], nil }, func() {})
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	expect.OK(t, files.Write(path, w.Write))
	return path
}

// TestTrainingGoesOnFromWeights: a run from a weights file starts with the loss of the file's
// model, in any layout.
func TestTrainingGoesOnFromWeights(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = "none", 3
	c.Model.Weights = weightsOf(t, c)
	from := goRun(t, c, nil)
	c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = 3, 1, 4
	if at := goRun(t, c, scatter(1)).difference(from); at != "" {
		t.Errorf("three stages differ from one at %s", at)
	}
	padded := c
	padded.Model.Vocab += 44
	most := math.Log(1 + 44./float64(c.Model.Vocab)) // see weights.Weights.Fit
	if more := goRun(t, padded, nil).losses[0] - from.losses[0]; !(more > 0 && float64(more) <= most+1e-6) {
		t.Errorf("44 tokens more: a loss larger by %v, want at most %v", more, most)
	}
	path := c.Model.Weights
	c.Model.Weights = ""
	if drawn := goRun(t, c, nil); drawn.losses[0] == from.losses[0] {
		t.Error("the file's weights were not used")
	}
	c.Model.Weights, c.Model.Hidden = path, 32
	if err := (&session{}).try(t, c); err == nil || !strings.Contains(err.Error(), "weights.safetensors") {
		t.Errorf("error %v, want one that names the file of another model", err)
	}
}

// TestReadInside: exits and slices of the head read targets, and may lie on any stage. If ranks
// leave, any rank may become the last stage.
func TestReadInside(t *testing.T) {
	for _, c := range []struct {
		kind   string
		slices int
		want   bool
	}{{"none", 1, false}, {"prune+freeze", 1, false}, {"attention", 1, false}, {"mod", 1, false}, {"none", 2, true}, {"exit", 1, true}, {"prune+mod+exit", 1, true}} {
		s := config.Default()
		s.Dynamic.Kind, s.Model.HeadShards = c.kind, c.slices
		if got := readInside(s); got != c.want {
			t.Errorf("%s, %d slices: %v, want %v", c.kind, c.slices, got, c.want)
		}
		if s.Repack.Kind = "sustain"; !readInside(s) {
			t.Errorf("%s: no rank inside reads, but some leave", c.kind)
		}
	}
}

// TestWeightsWithoutNewParts: a file of a model without exits and routers is enough for a model
// that has them. All other parts have the file's weights, and a message says that the new parts do
// not.
func TestWeightsWithoutNewParts(t *testing.T) {
	file := weightsOf(t, small(t, "dynamic.kind=none"))
	for kind, names := range map[string]string{"exit": "exits", "mod": "routers", "prune+exit+mod": "exits routers"} {
		c := small(t, chosen, "parallel.stages=1 train.steps=4 dynamic.kind="+kind, "model.weights="+file)
		still := goRun(t, c, nil)
		c.Parallel.Stages = 3
		same(t, goRun(t, c, scatter(2)), still)
		said := strings.Join(c.Ignored(), "\n")
		for name := range strings.FieldsSeq(names) {
			if !strings.Contains(said, "has nothing for "+name) {
				t.Errorf("%s: %q does not tell of %s", kind, said, name)
			}
		}
		c.Model.Weights = ""
		if drawn := goRun(t, c, nil); drawn.losses[0] == still.losses[0] {
			t.Errorf("%s: the file's weights were not used", kind)
		}
	}
}
