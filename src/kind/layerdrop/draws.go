package layerdrop

import (
	"math"

	"dynmo/src/dynamic"
	"dynmo/src/random"
)

// schedule says in which share of the steps blocks are kept.
type schedule struct {
	options
	blocks int
}

// theta returns θ(t) = (1 - θ̄)·exp(-γ·t) + θ̄ (Zhang & He 2020, equation 6).
func (s schedule) theta(step int) float64 {
	return (1-s.Theta)*math.Exp(-s.Gamma*float64(step)) + s.Theta
}

// share returns the probability with which block b, the l-th of L, is kept in a step:
//
//	1 - (l/L)·(1 - θ(t))    l = b + 1
func (s schedule) share(step, block int) float64 {
	return 1 - float64(block+1)/float64(s.blocks)*(1-s.theta(step))
}

// draws decides before every step which blocks are kept. A draw depends on seed, step and
// block alone: both halves of a block, all replicas and every placement agree, and a resumed
// run draws what the first run would have drawn.
type draws struct {
	dynamic.Unmeasured
	schedule
	seed uint64
	told float64 // 1 - θ in the last change that the kind reported
}

// stream keeps the draws apart from other random numbers of the same seed.
const stream = 0x6c61796572647270

// leastFall is the fall of θ after which the kind reports a change. The last block then costs 5 % of a block
// less, which may be worth a move of layers. Smaller falls are not.
const leastFall = 0.05

// Before tunes the gates of the stage's blocks. The kind reports a change when θ has fallen by leastFall.
// Costs are means over draws, and hold.
func (d *draws) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	for _, l := range t.Stage.Layers {
		if l.Block < 0 {
			continue
		}
		share := d.share(step, l.Block)
		if random.Keyed(d.seed, stream, uint64(step), uint64(l.Block)).Float64() >= share {
			share = -share
		}
		l.Tune(share)
	}
	theta := d.theta(step)
	if 1-theta < d.told+leastFall {
		return dynamic.Change{}, nil
	}
	d.told = 1 - theta
	return dynamic.Change{Kind: "layerdrop", Detail: map[string]float64{"theta": theta}}, nil
}
