package study

import (
	"math/bits"

	"dynmo/src/config"
	"dynmo/src/layout"
	"dynmo/src/schedule"
)

// Balancing takes these seconds. Measuring was timed on an Intel Xeon, in runs without
// arithmetic (clock=virtual); decisions on an AMD EPYC.
const (
	// measureStep is the time of measuring a step, and of sending the result to all ranks.
	// measureStage is added for each stage, measureLevel for each level of the tree over replicas,
	// and measurePass for each layer and microbatch of a replica. The sum is within 26 % of "path"
	// of dynmo bench scale on 4 to 720 ranks of two cores of an Intel Xeon (results/scale.txt).
	measureStep, measureStage, measureLevel, measurePass = 9e-5, 5e-6, 5e-5, 9.3e-8
	// decidePass is what an exact partition takes for each microbatch on each chunk, in a
	// schedule that follows from numbers alone. BenchmarkNext of plan/search takes
	// 0.32 ms on 8 stages with 32 microbatches, 4.0 ms on 24 with 96; in 37 runs on 4 with 16
	// a pass took 2.4 µs (quartiles 1.6 and 3.1).
	decidePass = 1.8e-6
	// adaptPass is the same where the schedule is made for the costs: BenchmarkNext takes
	// 14.5 ms on 24 stages with 96 microbatches (5.6 ms, 22 µs a pass, on 8 with 32).
	adaptPass = 6.3e-6
	// veePass is the same where stages hold two chunks in a V. A decision of auto seeks cuts and
	// orders for both maps: 40 to 88 ms on 24 stages with 96 microbatches (9 to 19 µs a pass). A
	// decision of zb-v takes 48 ms (10 µs a pass).
	veePass = 1.4e-5
	// diffuseStage is what diffusion takes for each stage, most of it messages between
	// neighbours, in 25 runs of 4 ranks (quartiles 0.27 and 0.33 ms).
	diffuseStage = 3e-4
)

// adapts reports whether the schedule of the settings follows from costs.
func adapts(c config.Config) bool {
	kind := schedule.Kind(c.Schedule.Kind)
	return kind == schedule.KindList || kind == schedule.KindAuto || kind == schedule.KindZBV
}

// measuring returns the seconds in which a step of a layout is measured, which only layouts
// that may change ask for. Messages go up a tree of ranks and down again.
func (o Options) measuring(l layout.Layout) float64 {
	c := o.Config
	if o.Static || !c.Balance.Moves() && !adapts(c) {
		return 0
	}
	m := l.Mesh
	levels := float64(bits.Len(uint(m.Replicas - 1)))
	hops := 2 * (float64(bits.Len(uint(m.Stages-1))) + levels)
	return c.Simulate.Measuring * (measureStep + measureStage*float64(m.Stages) + measureLevel*levels +
		measurePass*float64(l.Cuts.Layers()*l.Schedule.Microbatches) + hops*o.Network.Link(0, m.Size()-1).Latency)
}

// deciding returns the seconds of a decision that is taken in a layout.
func (o Options) deciding(l layout.Layout) float64 {
	m := l.Map()
	passes := float64(m.Virtual() * l.Schedule.Microbatches)
	seconds := decidePass * passes
	switch {
	case adapts(o.Config) && m.Chunks > 1:
		seconds = veePass * passes
	case adapts(o.Config):
		seconds = adaptPass * passes
	case o.Config.Balance.Kind == "diffusion":
		seconds = diffuseStage * float64(m.Stages)
	}
	return o.Config.Simulate.Deciding * seconds
}
