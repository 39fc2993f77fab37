package train

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	cpudevice "dynmo/src/device/cpu"
	"dynmo/src/kernel/null"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/plan"
	"dynmo/src/schedule"
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

// fixedBytes returns what stages hold besides their layers: the pipeline's
// buffers, and, once on every rank, what sums the largest layer's gradients.
func fixedBytes(c config.Config, x *model.Exec) plan.FixedBytes {
	shape := modelConfig(c)
	sum := int64(0)
	for _, l := range model.Outline(shape, x) {
		sum = max(sum, pipeline.SumBytes(l.Bytes.Gradients, c.Parallel.Replicas))
	}
	return func(m partition.Map, virtual int, peak schedule.Peak) int64 {
		bytes := pipeline.FixedBytes(x, shape, m, virtual, peak)
		if m.Chunk(virtual) == 0 {
			bytes += sum
		}
		return bytes
	}
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
