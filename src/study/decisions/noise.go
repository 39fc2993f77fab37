package decisions

import (
	"math"
	"math/rand/v2"
	"sort"

	"dynmo/src/random"
)

// Noise is a way in which measured seconds differ from true ones.
type Noise struct {
	Name string
	// span draws the factor of one pass of one layer for one microbatch; nil: 1.
	span func(*rand.Rand) float64
	// bursts says that ranks are slower for some steps, common that all passes of a
	// rank's step share a factor, drift that what layers truly cost changes.
	bursts, common, drift bool
	// Regret is what the 95th percentile of the regret should not exceed, and Clean
	// the share of runs at constant truth that should be without a needless move; 0
	// where nothing is to be reached.
	Regret, Clean float64
}

const (
	// burstStart is the probability that a burst begins at a step: with burstMost
	// steps at most, one rank of the eight is slow in a fifth of the steps.
	burstStart = 0.02
	burstMost  = 20
	// burstLeast and burstRange: a process that takes a core away for half of the
	// time, or for two thirds of it.
	burstLeast, burstRange = 1.5, 1.5
	// commonSpread is by how much medians of whole steps of a rank differ on a shared
	// machine of two cores. A balancer that is certain to three deviations needs 30 steps
	// then to tell a gain of 5 %, so that no regret can be asked of it.
	commonSpread = 0.05
	// driftMost is by what share a layer's true seconds change at most over a run.
	driftMost = 0.3
)

// Noises are the kinds of noise that decisions are tried under. Interference adds
// time and never takes any, so most are one-sided; the symmetric one is there since
// estimates that trust the smallest time fail on it.
var Noises = []Noise{
	{Name: "none", Regret: 1.03, Clean: 0.99},
	{Name: "one-sided-20", span: oneSided(0.2), Regret: 1.03, Clean: 0.99},
	{Name: "one-sided-40", span: oneSided(0.4), Regret: 1.06, Clean: 0.99},
	{Name: "bursts", span: oneSided(0.2), bursts: true, Regret: 1.03, Clean: 0.99},
	{Name: "symmetric-20", span: func(r *rand.Rand) float64 { return math.Exp(0.2 * r.NormFloat64()) }, Regret: 1.03, Clean: 0.95},
	{Name: "drift", span: oneSided(0.05), drift: true},
	{Name: "recorded", span: func(r *rand.Rand) float64 { return recorded(r.Float64()) }, common: true},
}

// oneSided returns 1 + a·x with x ~ Exp(1).
func oneSided(a float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return 1 + a*r.ExpFloat64() }
}

// The quantiles of single passes over their median, as recorded on ranks that shared
// two cores; both ends are guesses.
var (
	quantiles = []float64{0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1}
	passes    = []float64{0.80, 0.86, 0.93, 1, 1.10, 1.36, 1.65, 2.2}
)

// recorded returns the quantile u, in [0, 1), of the recorded passes: linear between
// those that are known.
func recorded(u float64) float64 {
	i := sort.Search(len(quantiles)-1, func(i int) bool { return quantiles[i+1] > u })
	share := (u - quantiles[i]) / (quantiles[i+1] - quantiles[i])
	return passes[i] + share*(passes[i+1]-passes[i])
}

// Streams of random numbers: keys that follow the seed.
const (
	streamSpans uint64 = iota
	streamCommon
	streamBursts
	streamDrift
	streamChain
	streamChanges
	streamSlow
)

// draws are the random numbers of one kind of noise in one run. They depend on the
// seed, the step, and the layer or rank, on nothing that a balancer does.
type draws struct {
	noise Noise
	seed  uint64
	burst [][]float64 // by step and rank: factor; nil: no bursts
	ends  []float64   // by layer: factor of its true seconds at the end of the run
	steps int
	pcg   rand.PCG
	rnd   *rand.Rand // on pcg

	factors []float64 // see spans
}

func newDraws(n Noise, seed uint64, steps, ranks, layers int) *draws {
	d := &draws{noise: n, seed: seed, steps: steps}
	d.rnd = rand.New(&d.pcg)
	if n.bursts {
		d.burst = bursts(random.Keyed(seed, streamBursts), steps, ranks)
	}
	if n.drift {
		rnd := random.Keyed(seed, streamDrift)
		for range layers {
			d.ends = append(d.ends, 1+driftMost*(2*rnd.Float64()-1))
		}
	}
	return d
}

// bursts draws the factors of every rank in every step.
func bursts(rnd *rand.Rand, steps, ranks int) [][]float64 {
	rows := make([][]float64, steps)
	for step := range rows {
		rows[step] = make([]float64, ranks)
		for rank := range rows[step] {
			rows[step][rank] = 1
		}
	}
	for step := range rows {
		if rnd.Float64() >= burstStart {
			continue
		}
		rank, factor, length := rnd.IntN(ranks), burstLeast+burstRange*rnd.Float64(), 1+rnd.IntN(burstMost)
		for s := step; s < min(steps, step+length); s++ {
			rows[s][rank] = max(rows[s][rank], factor)
		}
	}
	return rows
}

// spans returns the factors of a layer's passes in a step, valid until the next call.
func (d *draws) spans(step, layer, n int) []float64 {
	random.Seed(&d.pcg, d.seed, streamSpans, uint64(step), uint64(layer))
	d.factors = d.factors[:0]
	for range n {
		factor := 1.0
		if d.noise.span != nil {
			factor = d.noise.span(d.rnd)
		}
		d.factors = append(d.factors, factor)
	}
	return d.factors
}

// rank returns the factor of all passes of a rank in a step.
func (d *draws) rank(step, rank int) float64 {
	factor := 1.0
	if d.noise.bursts {
		factor = d.burst[step][rank]
	}
	if d.noise.common {
		random.Seed(&d.pcg, d.seed, streamCommon, uint64(step), uint64(rank))
		factor *= math.Exp(commonSpread * d.rnd.NormFloat64())
	}
	return factor
}

// truth returns the factor of what a layer truly costs at a step: from 1 on half a
// cosine to that of the end.
func (d *draws) truth(step, layer int) float64 {
	if !d.noise.drift {
		return 1
	}
	return 1 + (d.ends[layer]-1)*(1-math.Cos(math.Pi*float64(step)/float64(d.steps)))/2
}
