package balance

import (
	"cmp"
	"math"
	"slices"
)

// Saving is what a layer that computes its forward twice saves and costs.
type Saving struct {
	Bytes   int64   // of memory
	Seconds float64 // more for one microbatch, >= 0
}

// Twice is which of some layers compute twice.
type Twice struct {
	Chosen  []bool
	Seconds float64 // the sum over the chosen
	Bound   float64 // no choice that saves enough takes less; Seconds if the choice is exact
}

// mostChoices bounds how many numbers of alike layers Least tries. Three classes of 400 layers
// each stay below it.
const mostChoices = 1 << 18

// alike is layers of one saving.
type alike struct {
	Saving
	layers []int
}

// Least chooses layers that save at least need bytes together and take the least seconds:
//
//	min Σ x_l·seconds_l  with  Σ x_l·bytes_l >= need,  x_l in {0, 1}
//
// Of alike layers it takes the first ones. It branches over the number of layers of each class
// that recompute. Classes come in the order of seconds for a byte, and bounds come from the
// linear programme (Kolesar 1967). It is exact for three classes of up to 400 layers. For more classes
// it is exact unless it has to try more than mostChoices. If all layers together save less than
// need, all layers that save anything are chosen.
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
	if s.best == nil { // they are not enough
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
	counts  []int // of each class so far
	best    []int // of each class; nil: none is enough yet
	least   float64
	tries   int
}

// relaxed returns the least seconds for need bytes of the classes from k on, if a part of a
// layer could compute twice; infinite if they are not enough.
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

// take tries all numbers of layers of the classes from k on that save need bytes more.
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

// saving returns what a layer saves on a stage if it computes twice.
func (p Problem) saving(stage, l int) Saving {
	return Saving{
		int64(entry(p.InFlight, stage, 1))*(entry(p.ActivationBytes, l, 0)-p.TwiceBytes[l]) +
			int64(entry(p.Recomputed, stage, 1))*(entry(p.AgainBytes, l, 0)-p.TwiceAgain[l]),
		p.TwiceSeconds[l],
	}
}

// leastBytes is summedBytes of layers that compute twice wherever that saves memory.
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

// secondsOfTwice is seconds where layers compute twice as far as memory wants it. It never
// falls with e: what suits layers [b, e) suits those before the last, and takes less. Where a
// choice was not exact, or joint bytes fall, it is that of fewer layers.
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
