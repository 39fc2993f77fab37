package pipeline_test

import (
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// timed adds up what calls of another backend take.
type timed struct {
	kernel.Calls
	kernel.Backend
	products, permuting float64 // seconds: of the matrices of MLPs, of rows that go to experts and back
	inside              int
}

func (k *timed) do(s device.Stream, c *kernel.Call) {
	start := time.Now()
	k.Backend.Run(s, *c)
	seconds := time.Since(start).Seconds()
	switch c.Op {
	case kernel.MatmulForward, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight, kernel.GroupedForward, kernel.GroupedBackwardInput,
		kernel.GroupedBackwardWeight:
		if c.C == k.inside || c.O == 2*k.inside {
			k.products += seconds
		}
	case kernel.GatherRows, kernel.CombineRows, kernel.CombineRowsAdd, kernel.CombineGradient:
		k.permuting += seconds
	}
}

// calls is a timed backend's methods: its calls in place of the other's.
type calls struct {
	*kernel.Calls
	of *timed
}

func (c calls) Name() string                       { return c.of.Backend.Name() }
func (c calls) Identity() string                   { return c.of.Backend.Identity() }
func (c calls) Close() error                       { return c.of.Backend.Close() }
func (c calls) Run(s device.Stream, k kernel.Call) { c.of.do(s, &k) }

// BenchmarkExperts measures steps of a model with experts, in halves of blocks:
//
//	layer/products  = seconds of MLPs with all that routing takes / of their matrices alone
//	permuting       = share of gathering and combining rows
//
// and for comparison the same of one gated MLP as wide as the experts of a token together.
func BenchmarkExperts(b *testing.B) {
	if !cpu.Built {
		b.Skip("built without the tag blas")
	}
	dense := model.Config{
		Family: "llama", Blocks: 2, Hidden: 256, Heads: 4, Intermediate: 896, NormEps: 1e-5, Rope: model.Rope{Base: 1e4},
		Sequence: 512, Vocab: 256, Tied: true, HalfGrain: true, Seed: 1,
	}
	mixtral, cut := dense, dense
	mixtral.Experts = model.Experts{Count: 8, Top: 2, Auxiliary: 0.01, Z: 0.001}
	cut.Intermediate, cut.Experts = 176, model.Experts{Count: 16, Top: 4, Auxiliary: 0.01, Z: 0.001}
	balanced := cut
	balanced.Experts.Balanced = true
	for _, c := range []struct {
		name  string
		shape model.Config
	}{{"dense", dense}, {"8,top2", mixtral}, {"16,top4", cut}, {"16,top4,s-base", balanced}} {
		b.Run(c.name, func(b *testing.B) { benchmarkExperts(b, c.shape) })
	}
}

func benchmarkExperts(b *testing.B, c model.Config) {
	expect.OK(b, local.Run(1, func(tr comm.Transport) error {
		clock := device.NewWall()
		backend, err := cpu.New(1)
		if err != nil {
			return err
		}
		k := &timed{Backend: backend, inside: c.Intermediate}
		k.Calls = kernel.NewCalls(tensor.F32, tensor.Host, false, k.do)
		m, err := runnerOf(tr, c, newSchedule(&testing.T{}, schedule.Kind1F1B, 1, 1), clock, calls{&k.Calls, k}, comm.Options{Clock: clock})
		if err != nil {
			return err
		}
		var layers, permuting []float64
		for b.Loop() {
			k.products, k.permuting = 0, 0
			done, err := m.Step(m.feed)
			if err != nil {
				return err
			}
			seconds := 0.0
			for _, s := range done.Spans {
				if s.Layer >= 0 && m.s.Layers[s.Layer].Kind == model.MLP {
					seconds += s.End - s.Start
				}
			}
			layers, permuting = append(layers, seconds/k.products), append(permuting, k.permuting/seconds)
		}
		b.ReportMetric(median(layers), "layer/products")
		b.ReportMetric(median(permuting), "permuting")
		return nil
	}))
}
