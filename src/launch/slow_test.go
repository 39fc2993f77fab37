package launch

import (
	"math"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/data"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/record"
	"dynmo/src/train"
)

// balances counts moves and keeps the last step's numbers.
type balances struct {
	quiet
	moves, late int // migrations; those after step 30
	last        record.Metrics
}

func (b *balances) Step(m record.Metrics) error { b.last = m; return nil }

func (b *balances) Event(e record.Event) error {
	if e.Kind == record.Migrate {
		b.moves++
		if e.Step > 30 {
			b.late++
		}
	}
	return nil
}

// TestSlowRankDoesNotOscillate: one rank of four is twice as slow. Its slowness
// must not travel with its layers: balancing settles, on cuts near those that
// are best with the true speeds.
func TestSlowRankDoesNotOscillate(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Model.Blocks = "none", 22
	c.Parallel.Stages, c.Parallel.Microbatches, c.Train.Steps = 4, 16, 60
	c.Balance.Every = "5"
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	out := &balances{}
	err = local.Run(4, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause() // known costs only
		factor := 1e-3
		if tr.Rank() == 1 {
			factor = 2e-3
		}
		r, err := train.New(train.Setup{
			Config: c, World: comm.New(tr, comm.Options{Clock: clock}), Device: cpu.New(clock), Corpus: corpus,
			Backend: null.New(clock, func(call *kernel.Call) float64 {
				if call.O == 3*c.Model.Hidden { // one product a block and direction
					return factor
				}
				return 0
			}),
			Stop: func() bool { return false }, Observe: out,
		})
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = r.Loop()
		return err
	})
	expect.OK(t, err)
	if out.moves == 0 || out.late > 0 {
		t.Errorf("%d migrations, %d of them after step 30: want some, then none", out.moves, out.late)
	}
	// 22 blocks of 3 ms: speeds 1, 1/2, 1, 1 could share them at best as 6.3,
	// 3.1, 6.3, 6.3 blocks; whole blocks give 7 of 3 ms, or 21 ms.
	if got := float64(out.last.Bottleneck); math.Abs(got-0.021) > 1e-9 {
		t.Errorf("bottleneck %v s with cuts %v, want 0.021 s", got, out.last.LayersPerStage)
	}
}
