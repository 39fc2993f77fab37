package train

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	cpudevice "dynmo/src/device/cpu"
	"dynmo/src/kernel/null"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/plan"
)

// FixedBytes returns, for the settings of a run, what stages hold besides their
// layers, as the run itself reckons.
func FixedBytes(c config.Config) plan.FixedBytes {
	clock := device.NewWall()
	dev := cpudevice.New(clock)
	return fixedBytes(c, &model.Exec{
		Device: dev, Backend: null.NewOf(precision(c), clock, nil), Stream: dev.NewStream(),
		B: c.Parallel.MicrobatchSize, T: c.Model.Sequence,
	})
}

// fixedBytes returns what stages hold besides their layers.
func fixedBytes(c config.Config, x *model.Exec) plan.FixedBytes {
	return pipeline.FixedBytes(x, modelConfig(c), c.Parallel.Replicas)
}

// outline returns the dense chain before training: bytes and parameters, no
// seconds.
func outline(c config.Config, x *model.Exec) cost.Table {
	dense := cost.Table{Clock: x.Device.Clock().Kind(), Layers: model.Outline(modelConfig(c), x)}
	for l := range dense.Layers {
		bytes := &dense.Layers[l].Bytes
		bytes.Workspace += pipeline.ReduceBytes(bytes.Gradients, c.Parallel.Replicas)
	}
	return dense
}

// Shape returns the settings that the costs of layers hold for.
func Shape(c config.Config) string {
	m := c.Model
	shape := fmt.Sprintf("model.blocks=%d model.hidden=%d model.heads=%d model.sequence=%d model.vocab=%d model.tied=%t model.grain=%s model.head_shards=%d parallel.microbatch_size=%d",
		m.Blocks, m.Hidden, m.Heads, m.Sequence, m.Vocab, m.Tied, m.Grain, m.HeadShards, c.Parallel.MicrobatchSize)
	if c.Device.Kind == "cuda" {
		shape += fmt.Sprintf(" device.kind=cuda device.precision=%s", c.Device.Precision)
	}
	return shape
}
