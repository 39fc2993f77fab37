package pipeline_test

import (
	"runtime"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
)

// BenchmarkFrozen measures, on one rank, whole steps with their update of a model whose
// blocks train, of which the first half is frozen, and of which every second one is:
// in turn, so that what disturbs the machine hits all alike. Seconds are CPU time. It reports
// the median of the dense step, and the shares of it that freezing saves.
func BenchmarkFrozen(b *testing.B) {
	if !cpu.Built {
		b.Skip("needs the kernels in C")
	}
	backend, err := cpu.New(1)
	if err != nil {
		b.Fatal(err)
	}
	c := model.Config{Blocks: 12, Hidden: 128, Heads: 4, Sequence: 128, Vocab: 256, Seed: 1, Tied: true}
	cases := []func(layer int) bool{
		func(int) bool { return false },
		func(l int) bool { return l <= c.Blocks/2 },
		func(l int) bool { return l%2 == 1 && l <= c.Blocks },
	}
	plan, err := schedule.New(schedule.Kind1F1B, 1, 1, microbatches)
	if err != nil {
		b.Fatal(err)
	}
	took := make([][]float64, len(cases))
	err = local.Run(1, func(tr comm.Transport) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		clock := device.NewVirtual()
		r, err := runner(tr, c, plan, clock, backend)
		if err != nil {
			return err
		}
		for range b.N {
			for i, frozen := range cases {
				r.s.Freeze(frozen)
				if err := r.replan(equal(c, plan.Map), plan, pipeline.Options{}); err != nil {
					return err
				}
				for k := range 3 { // the first fills buffers
					start := clock.Now()
					done, err := r.Step(r.feed)
					if err != nil {
						return err
					}
					if _, err := r.Agree(done.Losses, pipeline.Nothing); err != nil {
						return err
					}
					if err := r.Update(kernel.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, GradScale: 1}); err != nil {
						return err
					}
					if k > 0 {
						took[i] = append(took[i], clock.Now()-start)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	dense := median(took[0])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(1e3*dense, "dense-ms")
	b.ReportMetric(100*(1-median(took[1])/dense), "%-saved-by-prefix")
	b.ReportMetric(100*(1-median(took[2])/dense), "%-saved-by-every-second")
}
