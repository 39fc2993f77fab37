package balance

import (
	"cmp"
	"math"
	"slices"
)

// Saving is the memory that a layer saves, and the time that it costs, if it computes its forward
// twice.
type Saving struct {
	Bytes   int64   // of memory
	Seconds float64 // additional seconds for one microbatch, >= 0
}

// Twice is a choice of the layers that compute their forward twice.
type Twice struct {
	Chosen  []bool
	Seconds float64 // sum over the chosen layers
	Bound   float64 // lower bound: no choice that saves enough takes fewer seconds; equals Seconds if the choice is exact
}

// mostChoices bounds how many counts of equal layers Least tries. Three classes of 400 layers each
// stay below this bound.
const mostChoices = 1 << 18

// alike is a class of layers with the same saving.
type alike struct {
	Saving
	layers []int
}

// Least chooses layers that together save at least need bytes and add the fewest seconds:
//
//	min Σ x_l·seconds_l  with  Σ x_l·bytes_l >= need,  x_l in {0, 1}
//
// Of layers with the same saving it takes the first ones. It branches over the number of layers of
// each class that recompute. Classes are ordered by seconds per byte, and the linear programme
// gives the bounds (Kolesar 1967). The search is exact for three classes of up to 400 layers. For
// more classes it is exact unless it needs more than mostChoices tries. If all layers together save
// less than need, Least chooses all layers that save anything.
func Least(layers []Saving, need int64) Twice {
	t := Twice{Chosen: make([]bool, len(layers))}
	if need <= 0 {
		return t
	}
	var classes []alike
	for l, s := range layers {
		if s.Bytes <= 0 {
			continue
		}
		i := slices.IndexFunc(classes, func(c alike) bool { return c.Saving == s })
		if i < 0 {
			i, classes = len(classes), append(classes, alike{Saving: s})
		}
		classes[i].layers = append(classes[i].layers, l)
	}
	slices.SortStableFunc(classes, func(a, b alike) int {
		return cmp.Compare(a.Seconds*float64(b.Bytes), b.Seconds*float64(a.Bytes))
	})
	s := choice{classes: classes, counts: make([]int, len(classes)), least: math.Inf(1)}
	bound := s.relaxed(0, need)
	s.take(0, need, 0)
	if s.best == nil { // all layers together do not save enough
		for _, c := range classes {
			s.best = append(s.best, len(c.layers))
		}
		bound = math.Inf(1)
	}
	for i, c := range classes {
		for _, l := range c.layers[:s.best[i]] {
			t.Chosen[l] = true
		}
		t.Seconds += float64(s.best[i]) * c.Seconds
	}
	if t.Bound = min(bound, t.Seconds); s.tries <= mostChoices {
		t.Bound = t.Seconds
	}
	return t
}

// choice is the search of Least.
type choice struct {
	classes []alike
	counts  []int // layers of each class in the present branch
	best    []int // layers of each class in the best choice; nil until a choice saves enough
	least   float64
	tries   int
}

// relaxed returns the least seconds that save need bytes with the classes from k on, if a part of a
// layer could compute twice. It is infinite if these classes cannot save enough.
func (s *choice) relaxed(k int, need int64) float64 {
	seconds := 0.0
	for _, c := range s.classes[k:] {
		if need <= 0 {
			return seconds
		}
		if all := c.Bytes * int64(len(c.layers)); all < need {
			need, seconds = need-all, seconds+float64(len(c.layers))*c.Seconds
			continue
		}
		return seconds + c.Seconds*float64(need)/float64(c.Bytes)
	}
	if need > 0 {
		return math.Inf(1)
	}
	return seconds
}

// take tries all counts of layers of the classes from k on that save need more bytes.
func (s *choice) take(k int, need int64, seconds float64) {
	if need <= 0 {
		if seconds < s.least || s.best == nil {
			s.least, s.best = seconds, append(slices.Clone(s.counts[:k]), make([]int, len(s.counts)-k)...)
		}
		return
	}
	if s.tries++; k == len(s.classes) || s.tries > mostChoices && s.best != nil {
		return
	}
	if rest := s.relaxed(k, need); math.IsInf(rest, 1) || s.best != nil && seconds+rest >= s.least {
		return
	}
	c := s.classes[k]
	for n := int(min(int64(len(c.layers)), (need+c.Bytes-1)/c.Bytes)); n >= 0; n-- {
		s.counts[k] = n
		s.take(k+1, need-int64(n)*c.Bytes, seconds+float64(n)*c.Seconds)
	}
}

// saving returns the saving of a layer on a stage if the layer computes its forward twice.
func (p Problem) saving(stage, l int) Saving {
	return Saving{
		int64(entry(p.InFlight, stage, 1))*(entry(p.ActivationBytes, l, 0)-p.TwiceBytes[l]) +
			int64(entry(p.Recomputed, stage, 1))*(entry(p.AgainBytes, l, 0)-p.TwiceAgain[l]),
		p.TwiceSeconds[l],
	}
}

// leastBytes is summedBytes if every layer computes twice that saves memory by it.
func (c *chain) leastBytes(stage, b, e int) int64 {
	key := [2]int{stage, b}
	row := c.least[key]
	if row == nil {
		row = []int64{0}
	}
	for n := len(row); n <= e-b; n++ {
		row = append(row, row[n-1]+max(0, c.saving(stage, b+n-1).Bytes))
	}
	c.least[key] = row
	return c.plainBytes(stage, b, e) - row[e-b]
}

// secondsOfTwice is seconds where a stage lets layers compute twice until the layers fit into its
// memory. It never falls with e: a choice for layers [b, e) also suits the layers without the last,
// and takes no longer. If a choice is not exact, or joint bytes fall, the result is raised to that
// of fewer layers.
func (c *chain) secondsOfTwice(stage, b, e int) float64 {
	key := [2]int{stage, b}
	row := c.loads[key]
	for n := len(row); n <= e-b; n++ {
		work := c.work[b+n] - c.work[b]
		if limit := entry(c.Capacity, stage, 0); limit > 0 {
			need := c.plainBytes(stage, b, b+n) - limit
			if c.JointBytes != nil {
				need += c.JointBytes(b, b+n)
			}
			var list []Saving
			for l := b; l < b+n; l++ {
				list = append(list, c.saving(stage, l))
			}
			work += Least(list, need).Seconds
		}
		row = append(row, float64(entry(c.Slow, stage, 1)*work)+entry(c.Fixed, stage, 0))
		if n > 0 {
			row[n] = max(row[n], row[n-1])
		}
	}
	c.loads[key] = row
	return row[e-b]
}
