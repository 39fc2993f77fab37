package checkpoint

import (
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// weighed writes a checkpoint of a model with pruned layers, masked and in CSR, and
// returns its run directory and the layers.
func weighed(t *testing.T, dtype tensor.DType, change func(*Manifest)) (string, *model.Stage) {
	t.Helper()
	settings := config.Default()
	m := &settings.Model
	m.Blocks, m.Hidden, m.Heads, m.Sequence, m.Vocab, m.HeadShards, m.Tied = 2, 8, 2, 5, 256, 2, false
	dev := cpu.New(device.NewWall())
	c := model.FromConfig(settings)
	s, err := model.NewStage(c, c.All(), dev, dtype)
	expect.OK(t, err)
	for id, csrFrom := range map[int]float64{1: 1, 2: 0} {
		masks := make(map[int]model.Mask)
		for at, p := range s.Layers[id].Params() {
			if p.Prunable() {
				masks[at] = model.NewMask(p)
				for k := range masks[at] {
					masks[at][k] = 0x1248124812481248
				}
			}
		}
		expect.OK(t, s.Layers[id].Compress(masks, csrFrom))
	}
	run := t.TempDir()
	stream := dev.NewStream()
	defer stream.Close()
	var shot Snapshot
	expect.OK(t, shot.Take(s.Layers, Share{Of: 1}, stream))
	dir := filepath.Join(run, record.CheckpointDir)
	files, err := shot.Write(dir, 4, nil)
	expect.OK(t, err)
	order, err := schedule.New(schedule.Kind1F1B, 1, 1, 1)
	expect.OK(t, err)
	made := Manifest{Step: 4, Settings: settings.TOML(), DType: dtype.String(), Layers: c.Layers(), Files: files,
		Layout: layout.New(partition.Partition{0, c.Layers()}, order, 1, layout.StageMajor)}
	change(&made)
	expect.OK(t, Commit(dir, made, nil))
	return run, s
}

// The weights of a checkpoint are those of its layers, dense and not rounded, for every format of
// the layers.
func TestWeights(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16} {
		run, s := weighed(t, dtype, func(*Manifest) {})
		one, _, err := Newest(run)
		expect.OK(t, err)
		expect.OK(t, one.Restore())
		got, err := one.Weights()
		expect.OK(t, err)
		want := weights.FromChain(s.Config, func(id int) (*model.Layer, error) { return s.Layers[id], nil }, func() {})
		zeros := 0
		for _, p := range got.Config.Model.Weights() {
			x, err := got.Read(p)
			expect.OK(t, err)
			y, err := want.Read(p)
			expect.OK(t, err)
			for i := range y {
				if x[i] != y[i] {
					t.Fatalf("%v: %s: element %d is %v, want %v", dtype, p.Name, i, x[i], y[i])
				}
				if x[i] == 0 && strings.HasSuffix(p.Name, "/up.weight") {
					zeros++
				}
			}
		}
		if kept := 2 * 4 * 8 * 8 / 4; zeros != 2*4*8*8-kept {
			t.Errorf("%v: %d zeros", dtype, zeros)
		}
		expect.OK(t, got.Close())
	}
}

// A manifest whose settings describe another model, or none, is reported.
func TestWeightsRefuse(t *testing.T) {
	for want, change := range map[string]func(*Manifest){
		"manifest.json: settings of 3 layers, the checkpoint has 5":    func(m *Manifest) { m.Settings = "[model]\nblocks = 1\n" },
		"manifest.json: settings:1: ":                                  func(m *Manifest) { m.Settings = "blocks" },
		"manifest.json: dtype \"i32\", want f32, f64 or bf16":          func(m *Manifest) { m.DType = "i32" },
		"header: token.weight: 2048 entries of a dense matrix of 4096": func(m *Manifest) { m.Settings = strings.Replace(m.Settings, "hidden = 8", "hidden = 16", 1) },
	} {
		run, _ := weighed(t, tensor.F32, change)
		one, _, err := Newest(run)
		expect.OK(t, err)
		if err := one.Restore(); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), one.Dir) != 1 {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
