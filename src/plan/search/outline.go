package search

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/kernel/null"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// FixedBytes returns the bytes of a virtual stage besides its layers, in a schedule with this peak of
// the virtual stage. The function pipeline.FixedBytes makes one.
type FixedBytes func(m partition.Map, virtual int, peak schedule.Peak) cost.Memory

// Precision returns the element type of weights and activations.
func Precision(c config.Config) tensor.DType {
	if c.Device.Kind == "cuda" && c.Device.Precision == "bf16" {
		return tensor.BF16
	}
	return tensor.F32
}

// outliner returns an executor that measures the size of layers and allocates nothing.
func outliner(c config.Config) *model.Exec {
	clock := device.NewWall()
	dev := cpu.New(clock)
	return &model.Exec{
		Device: dev, Backend: null.NewOf(Precision(c), clock, nil), Stream: dev.NewStream(),
		B: c.Parallel.MicrobatchSize, T: c.Model.Sequence,
	}
}

// Fixed returns pipeline.FixedBytes for settings: the bytes that stages hold besides their layers.
func Fixed(c config.Config) FixedBytes {
	return pipeline.FixedBytes(outliner(c), model.FromConfig(c))
}

// Dense returns the costs of the chain before any pruning: bytes and parameters, no seconds. The bytes
// include memory that kinds of dynamism will take in later steps, so that a plan has room for it.
func Dense(c config.Config) cost.Table {
	var t cost.Table
	t.Layers = model.Outline(model.FromConfig(c), outliner(c))
	for _, kind := range dynamic.Active(c) {
		if kind.Memory == nil {
			continue
		}
		for l, bytes := range kind.Memory(c, Precision(c)) {
			t.Layers[l].Bytes.Parameters += bytes
		}
	}
	return t
}

// had returns the settings that costs of a shape hold for, in what changes only memory.
func had(c config.Config, shape string) config.Config {
	for _, kind := range dynamic.Active(c) {
		if kind.Had != nil {
			c = kind.Had(c, shape)
		}
	}
	return c
}

// lean returns settings with the same results in less memory, and the setting that differs, as
// "table.key = value"; "": no kind has any.
func lean(c config.Config) (set string, less config.Config) {
	for _, kind := range dynamic.Active(c) {
		if kind.Lean == nil {
			continue
		}
		if set, less = kind.Lean(c); set != "" {
			return set, less
		}
	}
	return "", c
}

// SpareBytes returns, by stage, how many bytes of the plan are places for copies of pieces that replicas
// divide (see package model). c are the settings of the plan.
func (p Plan) SpareBytes(c config.Config) []int64 {
	l := p.Layout
	stages := make([]int64, l.Stages())
	set, less := lean(c)
	if set == "" {
		return stages
	}
	with, without := Dense(c).Layers, Dense(less).Layers
	for v, peak := range l.Schedule.Peaks() {
		total := func(b cost.Bytes) int64 { return b.Memory(peak.InFlight, peak.Between, peak.Recomputed).Total() }
		lo, hi := l.Cuts.Range(v)
		for layer := lo; layer < hi; layer++ {
			stages[l.Map().Stage(v)] += total(with[layer].Bytes) - total(without[layer].Bytes)
		}
	}
	return stages
}

// Shape returns the settings on which the costs of layers depend, as text: "model.blocks=4 …". Costs
// of different shapes must not be compared; Suit converts some.
func Shape(c config.Config) string {
	m := c.Model
	shape := fmt.Sprintf("model.blocks=%d model.hidden=%d model.heads=%d model.sequence=%d model.vocab=%d model.tied=%t model.grain=%s model.head_shards=%d parallel.microbatch_size=%d",
		m.Blocks, m.Hidden, m.Heads, m.Sequence, m.Vocab, m.Tied, m.Grain, m.HeadShards, c.Parallel.MicrobatchSize)
	shape += c.FamilyHolds() + dynamic.Holds(c)
	if m.Recompute != "none" {
		shape += " model.recompute=" + m.Recompute
	}
	if c.Device.Kind == "cuda" {
		shape += fmt.Sprintf(" device.kind=cuda device.precision=%s", c.Device.Precision)
	}
	return shape
}
