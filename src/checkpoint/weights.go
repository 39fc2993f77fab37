package checkpoint

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// Config returns the settings of the run that wrote the checkpoint, and the keys that this version
// does not know.
func (c *Checkpoint) Config() (settings config.Config, unknown []string, err error) {
	settings, unknown, err = config.Parse("settings", []byte(c.Settings))
	if err == nil {
		if layers := model.FromConfig(settings).Layers(); layers != c.Layers {
			err = fmt.Errorf("settings of %d layers, the checkpoint has %d", layers, c.Layers)
		}
	}
	if err != nil {
		return settings, nil, c.fail(ManifestFile, err)
	}
	return settings, unknown, nil
}

// chain is the layers of a checkpoint. One layer at a time is in memory.
type chain struct {
	of    *Checkpoint
	shape model.Config
	dtype tensor.DType
	on    device.Device
	held  *model.Layer
}

// chain returns the layers, in the memory of this process.
func (c *Checkpoint) chain() (*chain, error) {
	settings, _, err := c.Config()
	if err != nil {
		return nil, err
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16} {
		if d.String() == c.DType {
			return &chain{of: c, shape: model.FromConfig(settings).Whole(), dtype: d, on: cpu.New(device.NewWall())}, nil
		}
	}
	return nil, c.fail(ManifestFile, fmt.Errorf("dtype %.100q, want f32, f64 or bf16", c.DType))
}

// layer returns a layer, valid until the next call.
func (k *chain) layer(id int) (*model.Layer, error) {
	if k.held != nil && k.held.ID == id {
		return k.held, nil
	}
	k.free()
	l, err := k.of.Layer(id, k.shape, k.on, k.dtype)
	if err != nil {
		return nil, err
	}
	k.held = l
	return l, nil
}

func (k *chain) free() {
	if k.held != nil {
		k.held.Free()
		k.held = nil
	}
}

// Weights returns the weights of the whole model as float32, with zeros for pruned weights. Rounded
// weights are returned unrounded. They are read on demand, one layer at a time. The hash of each
// file is checked.
func (c *Checkpoint) Weights() (*weights.Weights, error) {
	k, err := c.chain()
	if err != nil {
		return nil, err
	}
	return weights.FromChain(k.shape, k.layer, k.free), nil
}

// Thresholds returns the thresholds of the exits in chain order, as trained.
func (c *Checkpoint) Thresholds() (list []float64, err error) {
	k, err := c.chain()
	if err != nil {
		return nil, err
	}
	defer k.free()
	for id, d := range k.shape.Chain() {
		if d.Kind != model.Exit {
			continue
		}
		l, err := k.layer(id)
		if err != nil {
			return nil, err
		}
		threshold, _ := l.Tuning()
		list = append(list, threshold)
	}
	return list, nil
}

// Restore reads all data from which a run resumes: the state of the run and every layer, each of
// which it frees again. It checks hashes, and that each layer belongs to the model of the settings.
func (c *Checkpoint) Restore() error {
	if _, err := c.Run(); err != nil {
		return err
	}
	k, err := c.chain()
	if err != nil {
		return err
	}
	defer k.free()
	for id := range c.Layers {
		if _, err := k.layer(id); err != nil {
			return err
		}
	}
	return nil
}
