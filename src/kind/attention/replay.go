package attention

import (
	"fmt"
	"slices"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// forcing has the buckets of a layer hold as many tokens of each microbatch as a file says. The
// buckets of queries and of keys are equal, in every head.
var forcing = dynamic.Forcing{
	Field: "buckets", Most: config.Config.TokensOfMicrobatch, ByMicrobatch: true,
	Numbers: func(c config.Config) int { return config.Of[options](c).Buckets },
	Has: func(d model.Description) bool {
		return slices.ContainsFunc(d.Makers, func(m model.Maker) bool { return m.Kind == model.Attention })
	},
	New: func(c config.Config, l dynamic.Loads) (dynamic.Kind, error) {
		count, all := config.Of[options](c).Buckets, c.TokensOfMicrobatch()
		if count < 2 {
			return nil, fmt.Errorf("dynamic.replay: attention.buckets = %d: want at least 2, between which tokens can be shared out", count)
		}
		forced := l.Counts(c.Parallel.MicrobatchSize, forcedChange,
			func(l *model.Layer, counts []int) {
				for _, p := range l.Parts {
					if s, ok := p.(interface{ Search() model.Search }); ok {
						s.Search().(*buckets).forced = counts
					}
				}
			},
			func(values []float64, _ float64) (string, float64) {
				return "computed", density(values, count, float64(c.Parallel.MicrobatchSize), float64(c.Model.Sequence))
			},
		)
		return forced, l.Check(func(_ float64, values []float64, i int) string {
			sum := 0.0
			for _, x := range values[i : i+count] {
				sum += x
			}
			if sum != float64(all) {
				return fmt.Sprintf("numbers that add up to %d, the tokens of a microbatch", all)
			}
			return ""
		})
	},
}

// density returns the share of the causal scores that loads of count numbers leave. The tokens
// of a bucket are spread evenly over the sequences of a microbatch.
func density(loads []float64, count int, sequences, length float64) float64 {
	pairs := 0.0
	for _, x := range loads {
		x /= sequences
		pairs += x * (x + 1) / 2
	}
	return pairs / (float64(len(loads)/count) * length * (length + 1) / 2)
}

// forcedChange is the kind of a change to forced loads.
const forcedChange = "attention.replay"

// tellForced says how many scores are computed.
func tellForced(of map[string]float64) string {
	return dynamic.Percent(of["computed"]) + " of the causal scores of attention are computed"
}

// force replaces the buckets that AttentionHash found by the forced ones: position i of the batch
// goes to the bucket that lags furthest behind its share of the first i tokens. pairs becomes the
// pairs of the forced buckets.
func (a *buckets) force(x *model.Exec, b *model.Batch, h kernel.Buckets, pairs tensor.Mem, heads int) {
	if a.forced == nil || b.Tokens == 0 {
		return
	}
	counts, t := a.forced[x.Microbatch*a.Count:][:a.Count], b.Tokens/b.Sequences
	given, members := make([]int, a.Count), make([][]int32, a.Count)
	var order, starts []int32
	var scored [2]float64
	for s := range b.Sequences {
		for bucket := range members {
			members[bucket] = members[bucket][:0]
		}
		for i := range t {
			bucket := furthestBehind(counts, given, s*t+i+1, b.Tokens)
			given[bucket]++
			members[bucket] = append(members[bucket], int32(i))
		}
		sorted, ends := slices.Concat(members...), []int32{0}
		for bucket, list := range members {
			n := len(list)
			ends = append(ends, ends[bucket]+int32(n))
			scored[0] += float64(heads * n * (n + 1) / 2)
		}
		scored[1] += float64(heads * t * (t + 1) / 2)
		order = append(order, slices.Repeat(sorted, 2*heads)...)
		starts = append(starts, slices.Repeat(ends, 2*heads)...)
	}
	x.Stream.Copy(h.Order.Span(0, tensor.From(order).Bytes), tensor.From(order))
	x.Stream.Copy(h.Starts, tensor.From(starts))
	x.Stream.Copy(pairs, tensor.From(scored[:]))
}

// furthestBehind returns the bucket that lacks the most tokens of its share of the first ones of
// all; of equal ones the first.
func furthestBehind(counts, given []int, first, all int) (bucket int) {
	most := counts[0]*first - given[0]*all
	for i := 1; i < len(counts); i++ {
		if lack := counts[i]*first - given[i]*all; lack > most {
			bucket, most = i, lack
		}
	}
	return bucket
}
