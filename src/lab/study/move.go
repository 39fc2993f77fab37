package study

import (
	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/layout"
)

// move returns the bytes that change owner after a step, and the seconds that takes: those
// of the rank that sends or receives most, over its link. While ranks stay replicas move
// alike, and the bytes are those of one. The transfers of layers are delayed by
// simulate.move_delay_most, each on its own.
func (o Options) move(t cost.Table, from, to layout.Layout, step int) (bytes int64, seconds float64) {
	own := func(layer int) bool { return t.Layers[layer].Bytes.Own > 0 }
	delay := comm.Delay{Most: o.Config.Simulate.MoveDelayMost, Seed: o.Config.Run.Seed}
	busiest := 0.0
	same, out, in := from.SameRanks(to), make(map[int]float64), make(map[int]float64)
	for _, m := range layout.Moves(from, to, own) {
		b := t.Layers[m.Layer].Bytes.Parameters + t.Layers[m.Layer].Bytes.Optimizer
		if !same || m.Replica == 0 {
			bytes += b
		}
		longer := float64(b) * delay.Factor(m.From, m.To, m.Layer, uint64(step))
		out[m.From] += longer
		in[m.To] += longer
		busiest = max(busiest, out[m.From], in[m.To])
	}
	if bandwidth := o.Network.Bandwidth(); bandwidth > 0 {
		seconds = busiest / bandwidth
	}
	return bytes, seconds
}

// packs returns o.Pack by decision, as the balancer counts steps. There is a decision after every
// simulated step.
func (o Options) packs(series cost.Series) map[int]int {
	packs := make(map[int]int)
	decisions, reached := 0, series[0].Step
	for _, phase := range series {
		steps := max(1, phase.Steps)
		for done, stands := 0, 0; done < steps; done += stands {
			stands = o.Sampling.stands(phase.Step+done, steps-done)
			decisions++
			for step := reached + 1; step <= reached+stands; step++ {
				if stages, ok := o.Pack[step]; ok {
					packs[decisions] = stages
				}
			}
			reached += stands
		}
	}
	return packs
}
