//go:build cuda && cgo

package prune

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/kernel/cuda"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// bus is a device that counts the bytes that its streams copy between it and the host.
type bus struct {
	device.Device
	bytes *int64
}

func (d bus) NewStream() device.Stream { return busStream{d.Device.NewStream(), d.bytes} }

type busStream struct {
	device.Stream
	bytes *int64
}

func (s busStream) Copy(dst, src tensor.Mem) {
	if dst.Space != src.Space {
		*s.bytes += dst.Bytes
	}
	s.Stream.Copy(dst, src)
}

// TestPruningStaysOnTheGPU: a pruning copies only the histograms of its matrices between the GPU
// and the host, four times 2 KB each. That holds for any weights, and for dense, masked and CSR
// matrices.
func TestPruningStaysOnTheGPU(t *testing.T) {
	dev := cudatest.New(t)
	backend, err := cuda.New(tensor.BF16)
	expect.OK(t, err)
	defer backend.Close()
	stream := dev.NewStream()
	defer stream.Close()
	var bytes int64
	on := bus{dev, &bytes}
	x := &model.Exec{Device: on, Backend: backend, Stream: stream, B: 1, T: 4}
	c := model.Config{Blocks: 2, Hidden: 64, Heads: 2, Sequence: 4, Vocab: 16, Seed: 9}
	for _, structure := range []string{"unstructured", "block32", "2:4"} {
		settings := config.Default()
		settings.Assign("prune.start", 0, "prune.every", 1, "prune.times", 3, "prune.csr_from", "0.7")
		settings.Assign("prune.initial", 0.3, "prune.structure", structure)
		if structure == "2:4" {
			settings.Assign("prune.final", 0.5)
		}
		p := newPruning(settings)
		s, err := model.NewStage(c, c.All(), on, tensor.BF16)
		expect.OK(t, err)
		group := comm.New(local.World(1)[0], comm.Options{Clock: dev.Clock()})
		for step := range 4 {
			bytes = 0
			_, err := p.Before(step, dynamic.Target{Stages: group, Exec: x, Stage: s})
			expect.OK(t, err)
			if want := int64(4 * 4 * c.Blocks * 2048); bytes != want {
				t.Errorf("%s, pruning %d: %d bytes between host and GPU, want the histograms' %d", structure, step, bytes, want)
			}
		}
		s.Free()
	}
}
