//go:build blas && cgo

package nodebench

import (
	"slices"
	"testing"

	"dynmo/src/device"
	hostdevice "dynmo/src/device/cpu"
	"dynmo/src/kernel/cpu"
	"dynmo/src/kind/mod"
	"dynmo/src/model"
)

// BenchmarkRouting is a step of a mixture of depths beside what it would take if it were
// proportional to the tokens in blocks: that of half as many blocks, and of the other
// half the share of the tokens that they take. All three take turns, and the median of
// the ratios is reported.
func BenchmarkRouting(b *testing.B) {
	for _, capacity := range []float64{0.125, 0.5} {
		b.Run(map[float64]string{0.125: "eighth", 0.5: "half"}[capacity], func(b *testing.B) {
			dense := model.Config{Blocks: 8, Hidden: 256, Heads: 8, Sequence: 128, Vocab: 256, Seed: 1}
			half, routed := dense, dense
			half.Blocks = dense.Blocks / 2
			routed = routed.With(mod.Depths{Capacity: capacity, Auxiliary: 0.01})
			backend, err := cpu.New(1)
			if err != nil {
				b.Skip(err)
			}
			dev := hostdevice.New(device.NewWall())
			bench := newBench(backend, dev)
			defer bench.free()
			var calls []func()
			for _, c := range []model.Config{dense, half, routed} {
				s, err := newStepper(&model.Exec{Device: dev, Backend: backend, Stream: dev.NewStream(), B: 4, T: c.Sequence}, c, 4, false)
				if err != nil {
					b.Fatal(err)
				}
				defer s.free()
				calls = append(calls, s.step)
			}
			spans := bench.rounds(max(5, b.N), calls...)
			var ratios, saved []float64
			for i, dense := range spans[0] {
				half, routed := spans[1][i], spans[2][i]
				ratios = append(ratios, routed/(half+capacity*(dense-half)))
				saved = append(saved, 1-routed/dense)
			}
			slices.Sort(ratios)
			slices.Sort(saved)
			b.ReportMetric(ratios[len(ratios)/2], "of-proportional")
			b.ReportMetric(saved[len(saved)/2], "saved")
		})
	}
}
