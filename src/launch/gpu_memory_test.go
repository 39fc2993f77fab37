//go:build cuda && cgo

package launch

import (
	"testing"

	"dynmo/src/record"
)

// TestMemoryIsAccountedForOnGPU is TestMemoryIsAccountedFor on a GPU that ranks share, with
// master weights too.
func TestMemoryIsAccountedForOnGPU(t *testing.T) {
	const base = onGPU + "model.hidden=48 balance.kind=uniform parallel.stages=2 parallel.microbatches=4 "
	for _, sets := range []string{
		"schedule.kind=1f1b dynamic.kind=none device.precision=bf16 parallel.replicas=2 train.steps=2",
		"schedule.kind=zb-h1 prune.start=1 prune.every=1 device.precision=f32",
		"schedule.kind=zb-h2 prune.start=1 prune.every=1 device.precision=bf16",
		"schedule.kind=zb-v dynamic.kind=none model.head_shards=3 device.precision=bf16 train.steps=2",
		"schedule.kind=interleaved dynamic.kind=none device.precision=f32 train.steps=2",
		spread + "dynamic.kind=moe model.hidden=16 device.precision=bf16 train.steps=2 parallel.microbatches=4",
	} {
		accounted(t, small(t, base, sets), nil, 0.98, 1.02, func(_ *rank, last record.Metrics) []int64 { return last.BytesPerStage })
	}
}
