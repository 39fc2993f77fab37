package balance

import (
	"math"
	"math/rand/v2"

	"dynmo/src/partition"
)

// programme returns the smallest bottleneck of p by the dynamic programme in
// full, O(P·L²):
//
//	F_s(e) = min_b max(F_{s-1}(b), seconds_s(b, e) + boundary(b))
//
// boundary is the cost of receiving a microbatch at a cut. The result is
// infinite if nothing fits. It shares the chain's arithmetic with Partition
// and none of its search.
func programme(c *chain, boundary func(cut int) float64) float64 {
	before := make([]float64, c.layers+1)
	for e := range before {
		before[e] = math.Inf(1)
	}
	before[0] = 0
	for s := range c.Stages {
		now := make([]float64, c.layers+1)
		for e := range now {
			now[e] = math.Inf(1)
			for b := range e + 1 {
				if b == e && !c.AllowEmpty || !c.fits(s, b, e) {
					continue
				}
				now[e] = min(now[e], max(before[b], c.seconds(s, b, e)+boundary(b)))
			}
		}
		before = now
	}
	return before[c.layers]
}

func noBoundary(int) float64 { return 0 }

// everyPartition calls visit with all partitions of p that fit its memory,
// summed layer by layer from the problem's own numbers.
func everyPartition(p Problem, visit func(cuts partition.Partition, stageSeconds []float64)) {
	cuts := make(partition.Partition, p.Stages+1)
	seconds := make([]float64, p.Stages)
	var place func(stage, b int)
	place = func(stage, b int) {
		if stage == p.Stages {
			if b == p.Layers() {
				visit(cuts, seconds)
			}
			return
		}
		for e := b; e <= p.Layers(); e++ {
			if e == b && !p.AllowEmpty {
				continue
			}
			work, bytes := 0.0, entry(p.FixedBytes, stage, 0)
			for l := b; l < e; l++ {
				work += p.Seconds[l]
				bytes += entry(p.StaticBytes, l, 0) + int64(entry(p.InFlight, stage, 1))*entry(p.ActivationBytes, l, 0) +
					int64(entry(p.Between, stage, 1))*entry(p.HeldBytes, l, 0) + int64(entry(p.Recomputed, stage, 1))*entry(p.AgainBytes, l, 0)
			}
			if p.JointBytes != nil {
				bytes += p.JointBytes(b, e)
			}
			if limit := entry(p.Capacity, stage, 0); limit > 0 && bytes > limit {
				continue // with JointBytes more layers may need less
			}
			cuts[stage+1] = e
			seconds[stage] = entry(p.Slow, stage, 1)*work + entry(p.Fixed, stage, 0)
			place(stage+1, e)
		}
	}
	place(0, 0)
}

// bruteForce returns the smallest bottleneck of p, infinite if nothing fits.
func bruteForce(p Problem) float64 {
	best := math.Inf(1)
	everyPartition(p, func(_ partition.Partition, seconds []float64) {
		worst := 0.0
		for _, x := range seconds {
			worst = max(worst, x)
		}
		best = min(best, worst)
	})
	return best
}

// randomProblem returns a small problem with exact sums: small integers for seconds and bytes,
// powers of two for speeds, and a common power of two on all seconds. Half of the problems have
// memory limits, which often cannot be met. Half have speeds and fixed seconds.
func randomProblem(rnd *rand.Rand) Problem {
	p := Problem{Stages: 1 + rnd.IntN(5), AllowEmpty: rnd.IntN(2) == 0}
	layers := 1 + rnd.IntN(9)
	if !p.AllowEmpty {
		layers = max(layers, p.Stages)
	}
	scale := math.Ldexp(1, rnd.IntN(61)-30) // 1e-9 to 1e9
	for range layers {
		p.Seconds = append(p.Seconds, scale*float64(rnd.IntN(12)))
		p.StaticBytes = append(p.StaticBytes, rnd.Int64N(10))
		p.ActivationBytes = append(p.ActivationBytes, rnd.Int64N(4))
		p.HeldBytes = append(p.HeldBytes, rnd.Int64N(4))
		p.AgainBytes = append(p.AgainBytes, max(0, rnd.Int64N(6)-2))
	}
	speeds, memory := rnd.IntN(2) == 0, rnd.IntN(2) == 0
	for s := range p.Stages {
		if speeds {
			p.Slow = append(p.Slow, math.Ldexp(1, rnd.IntN(3)-1))
			p.Fixed = append(p.Fixed, scale*float64(rnd.IntN(8)))
		}
		if memory {
			p.InFlight = append(p.InFlight, p.Stages-s)
			p.Between = append(p.Between, 1+rnd.IntN(3))
			p.Recomputed = append(p.Recomputed, 1+rnd.IntN(4))
			p.FixedBytes = append(p.FixedBytes, rnd.Int64N(3))
			p.Capacity = append(p.Capacity, rnd.Int64N(30)*rnd.Int64N(4))
		}
	}
	return p
}

// addJoint gives half of the problems JointBytes as replicas need them to sum gradients: layers
// are put into buckets from the last one on, and the memory is that of the largest even and the
// largest odd bucket. Layers next to empty ones shift the buckets, and little else needs memory,
// so that a stage may need less with one layer more.
func addJoint(rnd *rand.Rand, p *Problem) {
	const most = 10
	if rnd.IntN(2) == 0 {
		return
	}
	own := make([]int64, p.Layers())
	for l := range own {
		own[l] = []int64{0, 1, 1, 2, 5, most - 2, most - 1, most}[rnd.IntN(8)]
		p.StaticBytes[l], p.ActivationBytes[l], p.HeldBytes[l], p.AgainBytes[l] = rnd.Int64N(2), rnd.Int64N(2)*rnd.Int64N(2), 0, 0
	}
	p.JointBytes = func(b, e int) int64 {
		bucket, bytes, largest := 0, int64(0), [2]int64{}
		for l := e - 1; l >= b; l-- {
			if bytes > 0 && bytes+own[l] > most {
				bucket, bytes = 1-bucket, 0
			}
			bytes += own[l]
			largest[bucket] = max(largest[bucket], bytes)
		}
		return largest[0] + largest[1]
	}
	for s := range p.Capacity {
		if p.Capacity[s] > 0 {
			p.Capacity[s] = most/2 + rnd.Int64N(2*most)
		}
	}
}
