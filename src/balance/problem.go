package balance

import (
	"fmt"
	"math"

	"dynmo/src/cost"
)

// By selects how the load of a layer is measured.
type By string

const (
	ByTime  By = "time"  // measured seconds
	ByParam By = "param" // number of parameters that are not pruned
)

// Problem is a chain of layers to cut over stages. On stage s the layers [b, e) take
//
//	slow_s · Σ seconds[b:e] + fixed_s                                 seconds per microbatch
//	Σ static[b:e] + inflight_s · Σ activation[b:e]
//	              + between_s · Σ held[b:e] + recomputed_s · Σ again[b:e]
//	              + fixedBytes_s + joint(b, e)                              bytes
//
// A slice by stage may be nil; the comment at its field says what nil means.
type Problem struct {
	Names           []string  // by layer; nil if unknown. Static baselines and error texts use them
	Seconds         []float64 // by layer: load for one microbatch, finite, >= 0
	StaticBytes     []int64   // by layer: bytes that do not depend on microbatches; nil means 0
	ActivationBytes []int64   // by layer: memory for each microbatch in flight; nil means 0
	HeldBytes       []int64   // by layer: bytes for each microbatch between its I and its W; nil means 0
	AgainBytes      []int64   // by layer: bytes for each microbatch of recomputed values; nil means 0
	// TwiceBytes, TwiceAgain and TwiceSeconds are by layer and describe a layer that computes its
	// forward twice. The bytes replace ActivationBytes and AgainBytes; the seconds are added. Nil
	// means that no layer may compute twice. Each stage then lets only those layers compute twice
	// for which its memory is too small (see Least). The time of the stage includes their seconds.
	// Diffusion ignores these fields.
	TwiceBytes, TwiceAgain []int64
	TwiceSeconds           []float64

	MoveBytes []int64 // by layer: bytes that a move of the layer sends; nil means StaticBytes

	// JointBytes returns memory of layers [b, e) that is not a sum over layers. It never falls as b
	// falls, but may fall as e rises. Nil means 0. Diffusion ignores it.
	JointBytes func(b, e int) int64

	Stages     int
	Slow       []float64 // by stage: factor on seconds, > 0; nil means 1
	Fixed      []float64 // by stage: seconds that belong to no layer; nil means 0
	Capacity   []int64   // by stage: capacity in bytes, 0 for no limit; nil means no limit
	FixedBytes []int64   // by stage: bytes that belong to no layer; nil means 0
	InFlight   []int     // by stage: largest number of microbatches in flight; nil means 1
	Between    []int     // by stage: largest number of microbatches between I and W; nil means 1
	Recomputed []int     // by stage: largest number of microbatches with recomputed values; nil means 1

	AllowEmpty bool // whether a stage may have no layer; in training every stage needs one
}

// New returns the problem of cutting a measured chain over stages. inflight is the schedule's
// number of microbatches in flight by stage (nil: one). limit is the memory of every rank in bytes
// (0: no limit). Between and Recomputed stay nil; the caller sets them for a schedule that splits
// backwards into I and W. With ByParam the remaining parameters replace seconds, and speeds and
// fixed seconds are left out.
func New(t cost.Table, by By, stages int, inflight []int, limit int64) Problem {
	p := Problem{Stages: stages, InFlight: inflight}
	if by == ByParam {
		p.Seconds = t.NonZeros()
	} else {
		p.Seconds, p.Slow, p.Fixed = t.Seconds(), t.Slow, t.Fixed
	}
	for _, l := range t.Layers {
		p.Names = append(p.Names, l.Name)
		p.StaticBytes = append(p.StaticBytes, l.Bytes.Static())
		p.ActivationBytes = append(p.ActivationBytes, l.Bytes.Activations)
		p.HeldBytes = append(p.HeldBytes, l.Bytes.Held)
		p.AgainBytes = append(p.AgainBytes, l.Bytes.Recomputed)
		p.MoveBytes = append(p.MoveBytes, l.Bytes.Parameters+l.Bytes.Optimizer)
	}
	if limit > 0 {
		p.Capacity = make([]int64, max(stages, 0))
		for s := range p.Capacity {
			p.Capacity[s] = limit
		}
	}
	return p
}

// Layers returns the number of layers.
func (p Problem) Layers() int { return len(p.Seconds) }

// name returns the name of a layer in error texts.
func (p Problem) name(layer int) string {
	if p.Names == nil {
		return fmt.Sprintf("layer %d", layer)
	}
	return fmt.Sprintf("layer %d (%s)", layer, p.Names[layer])
}

// entry returns list[i], or absent if the list is nil.
func entry[T any](list []T, i int, absent T) T {
	if list == nil {
		return absent
	}
	return list[i]
}

// Check returns an error that names the first wrong field. Errors are wrong lengths, numbers that
// are negative or not finite, sums that overflow, and fewer layers than stages that need one.
func (p Problem) Check() error {
	layers, stages := p.Layers(), p.Stages
	if stages < 1 {
		return fmt.Errorf("stages: %d, want at least 1", stages)
	}
	if layers == 0 {
		return fmt.Errorf("seconds: no layers, want at least 1")
	}
	if !p.AllowEmpty && stages > layers {
		return fmt.Errorf("stages: %d are more than the %d layers; every stage needs a layer", stages, layers)
	}
	for _, f := range []struct {
		field     string
		got, want int
	}{
		{"names", len(p.Names), layers},
		{"bytes", len(p.StaticBytes), layers},
		{"activation_bytes", len(p.ActivationBytes), layers},
		{"held_bytes", len(p.HeldBytes), layers},
		{"again_bytes", len(p.AgainBytes), layers},
		{"twice_bytes", len(p.TwiceBytes), layers},
		{"twice_again", len(p.TwiceAgain), layers},
		{"twice_seconds", len(p.TwiceSeconds), layers},
		{"move_bytes", len(p.MoveBytes), layers},
		{"slow", len(p.Slow), stages},
		{"fixed_seconds", len(p.Fixed), stages},
		{"capacity_bytes", len(p.Capacity), stages},
		{"fixed_bytes", len(p.FixedBytes), stages},
		{"in_flight", len(p.InFlight), stages},
		{"between", len(p.Between), stages},
		{"recomputed", len(p.Recomputed), stages},
	} {
		if f.got != 0 && f.got != f.want {
			return fmt.Errorf("%s: %d entries, want %d", f.field, f.got, f.want)
		}
	}
	if err := p.checkSeconds(); err != nil {
		return err
	}
	return p.checkBytes()
}

// checkSeconds returns an error for seconds and factors that are negative, not finite, or too large
// to sum.
func (p Problem) checkSeconds() error {
	total, slowest, fixed := 0.0, 1.0, 0.0
	for l, x := range p.Seconds {
		if !(x >= 0) || math.IsInf(x, 1) {
			return fmt.Errorf("seconds[%d]: %v, want a finite number >= 0", l, x)
		}
		total += x
	}
	for s, x := range p.Slow {
		if !(x > 0) || math.IsInf(x, 1) {
			return fmt.Errorf("slow[%d]: %v, want a finite number > 0", s, x)
		}
		slowest = max(slowest, x)
	}
	for s, x := range p.Fixed {
		if !(x >= 0) || math.IsInf(x, 1) {
			return fmt.Errorf("fixed_seconds[%d]: %v, want a finite number >= 0", s, x)
		}
		fixed += x
	}
	// Diffusion squares loads; a load whose square overflows is no measurement.
	if sum := slowest*total + fixed; sum > math.Sqrt(math.MaxFloat64)/float64(p.Stages) {
		return fmt.Errorf("seconds: they sum to %v, which is out of range", sum)
	}
	return nil
}

// checkBytes returns an error for negative bytes, and for totals of 2^53 or more, which float64
// messages cannot represent.
func (p Problem) checkBytes() error {
	most := [3]int{1, 1, 1} // in flight, between, recomputed
	for i, f := range [...]struct {
		field string
		list  []int
	}{{"in_flight", p.InFlight}, {"between", p.Between}, {"recomputed", p.Recomputed}} {
		for s, n := range f.list {
			if n < 0 {
				return fmt.Errorf("%s[%d]: %d, want >= 0", f.field, s, n)
			}
			most[i] = max(most[i], n)
		}
	}
	for _, f := range []struct {
		field  string
		list   []int64
		factor float64
	}{
		{"bytes", p.StaticBytes, 1},
		{"activation_bytes", p.ActivationBytes, float64(most[0])},
		{"held_bytes", p.HeldBytes, float64(most[1])},
		{"again_bytes", p.AgainBytes, float64(most[2])},
		{"move_bytes", p.MoveBytes, 1},
		{"capacity_bytes", p.Capacity, 1 / float64(p.Stages)}, // the mean over stages is bounded
		{"fixed_bytes", p.FixedBytes, 1},
	} {
		sum := 0.0
		for i, b := range f.list {
			if b < 0 {
				return fmt.Errorf("%s[%d]: %d, want >= 0", f.field, i, b)
			}
			if sum += float64(b) * f.factor; sum >= 1<<53 {
				return fmt.Errorf("%s: 2^53 or more in all", f.field)
			}
		}
	}
	return nil
}
