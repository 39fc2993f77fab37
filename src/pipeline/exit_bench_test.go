package pipeline_test

import (
	"cmp"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/cpu"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// BenchmarkExits measures, in turn, steps of the dense model and of the same with exits
// behind every quarter of its blocks at which the median token of those that enter leaves:
//
//	tokens    = tokens in blocks with exits / without
//	blocks    = seconds of blocks with exits / without, the median of the rounds
//	blocks/tokens
//	step      = seconds of whole steps with exits / without, without the update
func BenchmarkExits(b *testing.B) {
	if !cpu.Built {
		b.Skip("built without the tag blas")
	}
	c := model.Config{Blocks: 12, Hidden: 256, Heads: 8, Sequence: 256, Vocab: 256, Tied: true, Seed: 1}
	exits := c
	exits.Exits = model.Exits{After: "3,6,9", Confidence: "classifier", Threshold: 2, Probe: 1. / 16, Weight: 0.3}
	plan := newSchedule(&testing.T{}, schedule.Kind1F1B, 1, 1)
	expect.OK(b, local.Run(1, func(tr comm.Transport) error {
		var members [2]*member
		for i, shape := range []model.Config{c, exits} {
			clock := device.NewWall()
			kernels, err := cpu.New(1)
			if err != nil {
				return err
			}
			if members[i], err = runnerOf(tr, shape, plan, clock, kernels, comm.Options{Clock: clock}); err != nil {
				return err
			}
		}
		dense, leaving := members[0], members[1]
		if err := halve(leaving); err != nil {
			return err
		}
		var blocks, steps, tokens []float64
		for b.Loop() {
			var seconds, whole [2]float64
			var share float64
			for i, m := range []*member{dense, leaving} {
				done, err := m.Step(m.feed)
				if err != nil {
					return err
				}
				for _, s := range done.Spans {
					if s.Layer >= 0 && m.s.Layers[s.Layer].Kind == model.Block {
						seconds[i] += s.End - s.Start
					}
				}
				whole[i] = trace.Summarise(done.Spans).Makespan()
				share = present(m, done.Counts) / float64(c.Blocks*m.x.N()*microbatches)
			}
			blocks, steps, tokens = append(blocks, seconds[1]/seconds[0]), append(steps, whole[1]/whole[0]), append(tokens, share)
		}
		b.ReportMetric(median(tokens), "tokens")
		b.ReportMetric(median(blocks), "blocks")
		b.ReportMetric(median(blocks)/median(tokens), "blocks/tokens")
		b.ReportMetric(median(steps), "step")
		return nil
	}))
}

// halve sets thresholds so that about half of the tokens that enter leave, exit by exit.
func halve(m *member) error {
	for _, l := range m.s.Layers {
		if l.Kind != model.Exit {
			continue
		}
		lo, hi := 0.0, 1.0
		for range 10 {
			l.SetThreshold((lo + hi) / 2)
			done, err := m.Step(m.feed)
			if err != nil {
				return err
			}
			entered, left := int64(0), int64(0)
			for _, count := range done.Counts {
				if count.Layer == l.ID && count.Name == model.ExitCounts {
					entered, left = entered+count.Values[0], left+count.Values[1]
				}
			}
			if 2*left > entered {
				lo = (lo + hi) / 2
			} else {
				hi = (lo + hi) / 2
			}
		}
	}
	return nil
}

// present returns the tokens in all blocks of a step.
func present(m *member, counts []cost.Count) float64 {
	tokens, here := 0.0, float64(m.x.N()*microbatches)
	for _, l := range m.s.Layers {
		if l.Kind == model.Block {
			tokens += here
		}
		for _, count := range counts {
			if count.Layer == l.ID && count.Name == model.ExitCounts {
				here -= float64(count.Values[1])
			}
		}
	}
	return tokens
}

func median(values []float64) float64 {
	values = slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return values[len(values)/2]
}
