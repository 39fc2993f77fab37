package study

import (
	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/layout"
)

// move returns the bytes of a replica that change owner after a step, and the seconds
// that takes: those of the rank that sends or receives most, over its link. The
// transfers of layers are delayed by simulate.move_delay_most, each on its own.
func (o Options) move(t cost.Table, from, to layout.Layout, step int) (bytes int64, seconds float64) {
	before, after := from.Owners(), to.Owners()
	delay := comm.Delay{Most: o.Config.Simulate.MoveDelayMost, Seed: o.Config.Run.Seed}
	replicas := from.Mesh.Replicas
	if delay.Most <= 1 {
		replicas = 1 // all are alike
	}
	busiest := 0.0
	for replica := range replicas {
		out, in := make(map[int]float64), make(map[int]float64)
		bytes = 0
		for _, l := range before.Moved(after) {
			b := t.Layers[l].Bytes.Parameters + t.Layers[l].Bytes.Optimizer
			bytes += b
			longer := float64(b) * delay.Factor(from.Mesh.Rank(before[l], replica), to.Mesh.Rank(after[l], replica), l, uint64(step))
			out[before[l]] += longer
			in[after[l]] += longer
			busiest = max(busiest, out[before[l]], in[after[l]])
		}
	}
	if bandwidth := o.Network.Bandwidth(); bandwidth > 0 {
		seconds = busiest / bandwidth
	}
	return bytes, seconds
}

// packs returns o.Pack as the balancer counts steps: by decision, of which there is one after
// every step that is simulated.
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
