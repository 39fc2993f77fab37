package sim

import (
	"math"
	"math/rand/v2"

	"dynmo/src/cost"
	"dynmo/src/random"
)

// Streams of random numbers: a kind's draws depend on no other's.
const (
	streamFreeze = iota
	streamExperts
	streamRouting
	streamDensity
	streamBuckets
	streamExit
	streamDepth
)

func (s study) random(stream uint64, key ...uint64) *rand.Rand {
	return random.Keyed(append([]uint64{s.seed, stream}, key...)...)
}

const (
	pruneTimes = 4   // intervals of the schedule, and
	pruneFinal = 0.9 // sparsity at its end (paper, appendix C.2)
	// csrFrom is the sparsity from which a CSR product is faster than a dense
	// one: 75 % on the paper's GPU (figure 6). From there on its time is taken to
	// be in proportion to what is left: at 90 % a product takes 0.4 of the dense.
	csrFrom = 0.75
	// csrWord is the bytes of a kept float32 weight in CSR, value and column, over
	// those of a dense one.
	csrWord = 2
)

// prune: S_t = S_f - S_f·(1 - (t-t0)/(n·Δt))³ (Zhu & Gupta 2017) of all blocks'
// weights together, the smallest magnitudes first. Block l's weights are taken
// to be normal with deviation 1/sqrt(l+1), as a depth-scaled initialisation
// leaves them (Zhang et al. 2019), so that later blocks lose more: with
// threshold τ block l keeps erfc(τ·sqrt((l+1)/2)). Seconds of products and
// bytes follow what is left once a layer is stored as CSR; before that it is
// masked, and as dear as the dense one. The random numbers play no part.
func (s study) prune(step int) state {
	left := 1 - math.Min(1, float64(step-s.o.Start)/float64(pruneTimes*s.o.Every))
	target := 1 - pruneFinal*(1-left*left*left) // what is kept
	kept := func(threshold float64, b block) float64 {
		return math.Erfc(threshold * math.Sqrt(float64(b.index+1)/2))
	}
	mean := func(threshold float64) float64 {
		sum, all := 0.0, 0.0
		for i, b := range s.blocks {
			if b.index >= 0 {
				n := float64(max(1, s.dense[i].NonZeros))
				sum, all = sum+n*kept(threshold, b), all+n
			}
		}
		return sum / all
	}
	low, high := 0.0, 10.0 // block 0 keeps everything, and nothing
	for range 60 {         // halvings down to the last bit
		if middle := (low + high) / 2; mean(middle) > target {
			low = middle
		} else {
			high = middle
		}
	}
	return s.change(func(l *cost.Layer, b block) {
		k := 1.0
		if target < 1 {
			k = kept(high, b)
		}
		share(&l.NonZeros, k)
		if k > 1-csrFrom {
			return
		}
		slower(l, b.attention+(1-b.attention)*k/(1-csrFrom))
		share(&l.Bytes.Parameters, csrWord*k)
		share(&l.Bytes.Gradients, k)
		share(&l.Bytes.Optimizer, k)
	})
}

// freezeFinal is the share of the blocks that are frozen by the end: an
// assumption. Egeria (Wang et al. 2022) freezes from the front, never all.
const freezeFinal = 2.0 / 3

// freeze: blocks freeze from the front, with all layers before them, at steps
// Start + k·Every. The times between two vary by half, and spread the last
// over the run. A frozen layer keeps its forward. Its w goes, and so does its i,
// since with everything upstream frozen nothing needs it, and its gradients are
// neither kept nor summed over replicas. Optimizer state stays: layers may thaw.
// The first layer that trains keeps its i, whose parts its own w needs.
func (s study) freeze(step int) state {
	last := int(math.Floor(freezeFinal * float64(s.count)))
	rnd := s.random(streamFreeze)
	frozen, at := 0, float64(s.o.Start)
	for frozen < last {
		at += (0.5 + rnd.Float64()) * float64(s.steps-s.o.Start) / float64(last+1)
		if at > float64(step) {
			break
		}
		frozen++
	}
	st := s.change(func(*cost.Layer, block) {})
	end := -1 // the last layer of the last frozen block
	for i, b := range s.blocks {
		if b.index >= 0 && b.index < frozen {
			end = i
		}
	}
	for i := range st.layers[:end+1] {
		l := &st.layers[i]
		l.BackwardInput, l.BackwardWeight, l.Bytes.Gradients = 0, 0, 0
	}
	return st
}

const (
	moeExperts = 8 // of a layer, as in Mixtral 8x7B
	// moeSpread is the deviation of the logarithm of an expert's load, once for
	// the layer and once for each of its microbatches: an assumption, with which
	// the fullest of eight experts has 1.4 times the mean.
	moeSpread = 0.2
)

// moe: a layer waits for its fullest expert. With loads x_e = exp(moeSpread·(a_e
// + b_e)), a_e ~ N(0,1) of the layer, b_e of step and microbatch, its MLP takes
// max x_e / mean x_e times as long as with equal loads, which the dense costs
// stand for.
func (s study) moe(step int) state {
	return s.scaled(func(to []float64, b block) {
		var habit [moeExperts]float64
		rnd := s.random(streamExperts, uint64(b.index))
		for e := range habit {
			habit[e] = rnd.NormFloat64()
		}
		rnd = s.random(streamRouting, uint64(step), uint64(b.index))
		for m := range to {
			sum, most := 0.0, 0.0
			for e := range habit {
				x := math.Exp(moeSpread * (habit[e] + rnd.NormFloat64()))
				sum, most = sum+x, max(most, x)
			}
			to[m] = 1 + b.mlp*(most*moeExperts/sum-1)
		}
	})
}

const (
	sparsestLayer, densestLayer = 0.1, 0.9 // mean density of a layer's scores: an assumption
	densityNoise                = 0.2      // deviation of its logarithm from step to step: an assumption
)

// attention: of the scores of a causal attention only those of equal buckets
// are computed (Pagliardini et al. 2023). Their density is uniform over the
// layers, in [sparsestLayer, densestLayer], and varies from step to step;
// attention over the scores takes so much of its dense time, the rest of the
// block all of it.
func (s study) attention(step int) state {
	return s.change(func(l *cost.Layer, b block) {
		mean := sparsestLayer + (densestLayer-sparsestLayer)*s.random(streamDensity, uint64(b.index)).Float64()
		noise := s.random(streamBuckets, uint64(step), uint64(b.index)).NormFloat64()
		density := min(1, mean*math.Exp(densityNoise*noise))
		slower(l, 1-b.attention*(1-density))
	})
}

const (
	exitFrom  = 0.25 // share of the blocks before the first exit, and
	exitFinal = 0.8  // of the tokens that have left before the last block by the end of the run: assumptions
)

// exit: behind every block from exitFrom of the depth on some tokens leave
// (CALM, Schuster et al. 2022), their numbers in proportion to weights drawn
// from [0.5, 1.5) once for each exit. Together they are a share of the tokens
// that grows from 0 at Start to exitFinal in the last step. Later blocks compute,
// keep and send on what is left. The head is as dear as before: a token's
// loss is computed at its exit or at the end.
func (s study) exit(step int) state {
	progress := exitFinal
	if last := s.steps - 1 - s.o.Start; last > 0 {
		progress *= float64(step-s.o.Start) / float64(last)
	}
	rnd := s.random(streamExit)
	gone := make([]float64, s.count+1) // before each block
	for b := range s.count {
		weight := 0.5 + rnd.Float64()
		if float64(b) < exitFrom*float64(s.count) || b == s.count-1 {
			weight = 0 // no exit, or the head itself
		}
		gone[b+1] = gone[b] + weight
	}
	left := func(b int) float64 {
		if gone[s.count] == 0 {
			return 1 // too few blocks for an exit
		}
		return 1 - progress*gone[b]/gone[s.count]
	}
	return s.change(func(l *cost.Layer, b block) {
		tokens, next := left(b.index), b.index
		if b.last {
			next++
		}
		slower(l, tokens)
		share(&l.Bytes.Activations, tokens)
		share(&l.Bytes.Held, tokens)
		share(&l.Output, left(next))
	})
}

const (
	modTokens = 0.125 // share of the tokens that a routed block takes (Raposo et al. 2024)
	// modNoise is its relative deviation, since a predictor decides and misjudges:
	// the paper finds imbalances of up to 18 % (section 2.2).
	modNoise = 0.18
)

// mod: every second block, the second, the fourth, …, takes modTokens of the
// tokens, more or less by step and microbatch; the others go by.
func (s study) mod(step int) state {
	return s.scaled(func(to []float64, b block) {
		if b.index%2 == 0 {
			return
		}
		rnd := s.random(streamDepth, uint64(step), uint64(b.index))
		for m := range to {
			to[m] = min(1, max(0, modTokens*(1+modNoise*rnd.NormFloat64())))
		}
	})
}
