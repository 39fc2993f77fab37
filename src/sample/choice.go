package sample

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// Choice is how a token is chosen from logits: of softmax(logits / Temperature), the
// TopK most probable tokens, and of these the fewest whose probabilities sum to TopP
// (Holtzman et al. 2020, "The curious case of neural text degeneration"). Of
// tokens that are equally probable the first is taken for more so.
type Choice struct {
	Temperature float64 // 0 takes the most probable token
	TopK        int     // 0 is all
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

// New returns a chooser. Equal seeds and logits give equal tokens. It panics if
// a field is out of its range.
func (c Choice) New() *Chooser {
	if c.Temperature < 0 || c.TopK < 0 || c.TopP <= 0 || c.TopP > 1 {
		panic("sample: a choice out of range")
	}
	return &Chooser{Choice: c, draw: rand.New(rand.NewPCG(c.Seed, 0))}
}

// Next returns the token that is chosen from logits. The error says that logits are
// not finite.
func (c *Chooser) Next(logits []float32) (int32, error) {
	best := 0
	for i, v := range logits {
		if v > logits[best] || v != v { // nothing is larger than a NaN
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

// cutK leaves the TopK most probable candidates, the most probable first.
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

// cutP leaves the fewest candidates whose probabilities sum to TopP. One whose
// probability is below (1-TopP)/candidates is never among them: all such together have
// less than what is left out. So that few are sorted, they go first.
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

// byP orders candidates, the most probable first.
func byP(a, b candidate) int { return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.token, b.token)) }

func (c *Chooser) total() float64 {
	sum := 0.0
	for _, x := range c.list {
		sum += x.p
	}
	return sum
}

// drawn draws one of the candidates.
func (c *Chooser) drawn() int32 {
	left := c.draw.Float64() * c.total()
	for _, x := range c.list {
		if left -= x.p; left < 0 {
			return x.token
		}
	}
	return c.list[len(c.list)-1].token // what rounding leaves
}
