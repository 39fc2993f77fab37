package launch

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/replace"
	"dynmo/src/tensor"
)

// TestTrainingGoesOnFromWeights: a run from a file of weights starts where the
// model of that file is, whatever the layout.
func TestTrainingGoesOnFromWeights(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = "none", 3
	other := c
	other.Run.Seed = 99
	shape := model.FromConfig(other)
	whole, err := model.NewStage(shape, shape.All(), cpu.New(device.NewWall()), tensor.F32)
	expect.OK(t, err)
	w := checkpoint.FromChain(shape, func(id int) (*model.Layer, error) { return whole.Layers[id], nil }, func() {})
	c.Model.Weights = filepath.Join(t.TempDir(), "weights.safetensors")
	expect.OK(t, replace.Write(c.Model.Weights, w.Write))
	from := goRun(t, c, nil)
	c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = 3, 1, 4
	if at := goRun(t, c, scatter(1)).difference(from); at != "" {
		t.Errorf("three stages differ from one at %s", at)
	}
	padded := c
	padded.Model.Vocab += 44
	most := math.Log(1 + 44./float64(c.Model.Vocab)) // see checkpoint.Weights.Fit
	if more := goRun(t, padded, nil).losses[0] - from.losses[0]; !(more > 0 && float64(more) <= most+1e-6) {
		t.Errorf("44 tokens more: a loss larger by %v, want at most %v", more, most)
	}
	path := c.Model.Weights
	c.Model.Weights = ""
	if drawn := goRun(t, c, nil); drawn.losses[0] == from.losses[0] {
		t.Error("the file's weights were not used")
	}
	c.Model.Weights, c.Model.Hidden = path, 32
	if err := trainLocally(t, c, &kept{}, func(*rank) error { return nil }); err == nil || !strings.Contains(err.Error(), "weights.safetensors") {
		t.Errorf("error %v, want one that names the file of another model", err)
	}
}
