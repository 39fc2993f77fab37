package sample

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// Choice is the rule by which a token is chosen from logits. Probabilities are softmax(logits /
// Temperature). Of the TopK most probable tokens, the fewest whose probabilities sum to TopP remain
// (Holtzman et al. 2020, "The curious case of neural text degeneration"). Of equally probable
// tokens the first counts as more probable.
type Choice struct {
	Temperature float64 // 0: always the most probable token
	TopK        int     // 0: all tokens
	TopP        float64 // in (0, 1]
	Seed        uint64
}

// Chooser chooses tokens one after the other.
type Chooser struct {
	Choice
	draw *rand.Rand
	list []candidate
}

type candidate struct {
	token int32
	p     float64 // not normalised
}

// New returns a chooser. Equal seeds and logits give equal tokens. New panics if a field is out of
// range.
func (c Choice) New() *Chooser {
	if c.Temperature < 0 || c.TopK < 0 || c.TopP <= 0 || c.TopP > 1 {
		panic("sample: a choice out of range")
	}
	return &Chooser{Choice: c, draw: rand.New(rand.NewPCG(c.Seed, 0))}
}

// Next chooses a token from logits. It returns an error if logits are not finite.
func (c *Chooser) Next(logits []float32) (int32, error) {
	best := 0
	for i, v := range logits {
		if v > logits[best] || v != v { // v != v: a NaN counts as the largest
			best = i
		}
	}
	largest := float64(logits[best])
	if math.IsNaN(largest) || math.IsInf(largest, 0) {
		return 0, errors.New("sample: the model's logits are not finite")
	}
	if c.Temperature == 0 {
		return int32(best), nil
	}
	c.list = c.list[:0]
	for i, v := range logits {
		c.list = append(c.list, candidate{int32(i), math.Exp((float64(v) - largest) / c.Temperature)})
	}
	c.cutK()
	c.cutP()
	return c.drawn(), nil
}

// cutK keeps the TopK most probable candidates, the most probable first.
func (c *Chooser) cutK() {
	if c.TopK == 0 || c.TopK >= len(c.list) {
		return
	}
	best := make([]candidate, 0, c.TopK+1)
	for _, x := range c.list {
		if len(best) == c.TopK && x.p <= best[c.TopK-1].p {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, x, byP)
		best = slices.Insert(best, at, x)
		best = best[:min(len(best), c.TopK)]
	}
	c.list = append(c.list[:0], best...)
}

// cutP keeps the fewest candidates whose probabilities sum to TopP. It first drops candidates with
// a probability below (1-TopP)/candidates, so that few are sorted. All of these together are less
// than the dropped share, so none of them could remain.
func (c *Chooser) cutP() {
	if c.TopP == 1 {
		return
	}
	total := c.total()
	least := (1 - c.TopP) / float64(len(c.list)) * total
	c.list = slices.DeleteFunc(c.list, func(x candidate) bool { return x.p < least })
	slices.SortFunc(c.list, byP)
	sum := 0.0
	for i, x := range c.list {
		if sum += x.p; sum >= c.TopP*total {
			c.list = c.list[:i+1]
			return
		}
	}
}

// byP orders candidates by probability, the most probable first.
func byP(a, b candidate) int { return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.token, b.token)) }

func (c *Chooser) total() float64 {
	sum := 0.0
	for _, x := range c.list {
		sum += x.p
	}
	return sum
}

// drawn draws one of the candidates by probability.
func (c *Chooser) drawn() int32 {
	left := c.draw.Float64() * c.total()
	for _, x := range c.list {
		if left -= x.p; left < 0 {
			return x.token
		}
	}
	return c.list[len(c.list)-1].token // reached only by rounding
}
