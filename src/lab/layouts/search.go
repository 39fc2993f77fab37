package layouts

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

const (
	// shown is the number of layouts that a search returns.
	shown = 5
	// budget bounds the instructions that a search simulates. A core simulates about 2e8 a second.
	budget = 1_000_000_000
	// patience divides the budget: a search ends that has found nothing better in one part of it.
	patience = 5
	// searchKey separates the random numbers of the search from others.
	searchKey = 0x6c61796f757473
)

// outcome is the result of a search.
type outcome struct {
	Best   []Layout // the best layouts, the best first
	Proven bool     // no other layout is better than the first: all were compared, or bounded
	Bound  float64  // seconds that no layout beats with this schedule
}

// findBest returns the layouts with the shortest simulated step. present is the layout that the user has
// now, where a search begins too; nil: unknown. budget bounds the instructions that it simulates. An error
// says why there is no layout.
//
// With one virtual stage on a stage the search goes through all cuts by branch and bound, and the result
// is proven unless the budget ends. With more it is an iterated local search: single cuts, and runs of
// neighbouring cuts, move by one place as long as the step gets shorter.
func findBest(budget int, p Problem, present partition.Partition) (outcome, error) {
	v, err := newSolver(p)
	if err != nil {
		return outcome{}, err
	}
	s := search{solver: v, draw: random.Keyed(searchKey), budget: budget}
	proven := p.Candidates != nil
	for _, cuts := range p.Candidates {
		if units, ok := v.unitsOf(cuts); ok {
			s.offer(units)
		}
	}
	if !proven {
		for _, units := range s.beginnings(present) {
			s.descend(units)
		}
		if v.virtual() == v.Stages && len(s.best) > 0 {
			proven = s.branch()
		}
	}
	for until := v.used + budget/patience; !proven && len(s.best) > 0 && v.used < min(budget, until); {
		before := s.best[0].seconds
		if s.descend(s.shake()); s.best[0].seconds < before {
			until = v.used + budget/patience
		}
	}
	if len(s.best) == 0 {
		return outcome{}, s.reason()
	}
	out := outcome{Proven: proven, Bound: v.leastSeconds()}
	for _, c := range s.best {
		out.Best = append(out.Best, v.describe(c.units))
	}
	return out, nil
}

// candidate is cuts of units and their step.
type candidate struct {
	units   []int
	seconds float64
	fullest float64 // seconds of the fullest stage's work for a microbatch
	squares float64 // sum of the squares of the stages' seconds
	inside  int     // cuts inside blocks
}

// compare orders candidates: the shorter step first, then fewer cuts inside blocks, then the lighter fullest
// stage, then the more equal stages, then the longer early stages.
func compare(a, b candidate) int {
	return cmp.Or(compareRounded(a.seconds, b.seconds), cmp.Compare(a.inside, b.inside), compareRounded(a.fullest, b.fullest),
		compareRounded(a.squares, b.squares), -slices.Compare(a.units, b.units))
}

// compareRounded compares two sums whose last digits depend on the order of their terms.
func compareRounded(a, b float64) int { return cmp.Compare(float32(a), float32(b)) }

type search struct {
	*solver
	budget int // see budget
	draw   *rand.Rand
	best   []candidate
}

// offer keeps cuts if they are among the best. It returns their seconds.
func (s *search) offer(units []int) float64 {
	c := candidate{seconds: s.evaluate(units)}
	if len(s.best) == shown && compareRounded(c.seconds, s.best[shown-1].seconds) > 0 {
		return c.seconds
	}
	busy := make([]float64, s.Stages)
	for k, x := range s.costs {
		busy[s.schedule.Map.Stage(k)] += x.Seconds()
	}
	c.units, c.fullest = slices.Clone(units), slices.Max(busy)
	for _, x := range busy {
		c.squares += x * x
	}
	for _, u := range units[1 : len(units)-1] {
		if s.Inside != nil && s.Inside[s.starts[u]] {
			c.inside++
		}
	}
	at, known := slices.BinarySearchFunc(s.best, c, compare)
	if known || !s.fits(units) {
		return c.seconds
	}
	s.best = slices.Insert(s.best, at, c)
	s.best = s.best[:min(len(s.best), shown)]
	return c.seconds
}

// beginnings returns cuts from which the search starts: the present ones, cuts at equal shares of the
// work, and at equal numbers of units.
func (s *search) beginnings(present partition.Partition) (list [][]int) {
	if units, ok := s.unitsOf(present); ok && present != nil {
		list = append(list, units)
	}
	total := s.sums[s.units()].Seconds()
	for _, share := range []func(u int) float64{
		func(u int) float64 { return s.sums[u].Seconds() / total },
		func(u int) float64 { return float64(u) / float64(s.units()) },
	} {
		units := make([]int, s.virtual()+1)
		units[s.virtual()] = s.units()
		for k := 1; k < s.virtual(); k++ {
			lo, hi := s.room(k, units[k-1])
			units[k] = lo
			for units[k] < hi && share(units[k]+1) <= float64(k)/float64(s.virtual()) {
				units[k]++
			}
		}
		list = append(list, units)
	}
	return list
}

// descend moves cuts as long as the step gets shorter. Cuts that break a rule are left.
func (s *search) descend(units []int) {
	units = slices.Clone(units)
	now := s.offer(units)
	if !s.fits(units) {
		now = unfit
	}
	inner := s.virtual() - 1
	for improved := true; improved && s.used < s.budget; {
		improved = false
		for length := 1; length <= inner; length++ {
			for first := 1; first+length-1 <= inner; first++ {
				for _, by := range []int{1, -1} {
					if !s.shift(units, first, length, by) {
						continue
					}
					if after := s.offer(units); after < now && s.fits(units) {
						now, improved = after, true
					} else {
						s.shift(units, first, length, -by)
					}
				}
			}
		}
	}
}

// unfit is the seconds of cuts that break a rule: every other cuts are better.
const unfit = 1e300

// shift moves `length` cuts from `first` on by `by` units. It reports false, and moves nothing, where
// the cuts have no room.
func (s *search) shift(units []int, first, length, by int) bool {
	last := first + length - 1
	gap := 1
	if s.Empty {
		gap = 0
	}
	lo, hi := units[first]+by, units[last]+by
	before, behind := units[first-1]+gap, units[last+1]-gap
	if first == 1 {
		before = 1
	}
	if last == s.virtual()-1 {
		behind = s.units() - 1
	}
	if lo < before || hi > behind {
		return false
	}
	for k := first; k <= last; k++ {
		units[k] += by
	}
	return true
}

// shake returns one of the best cuts with a few random shifts.
func (s *search) shake() []int {
	units := slices.Clone(s.best[s.draw.IntN(len(s.best))].units)
	inner := s.virtual() - 1
	if inner == 0 {
		s.used = s.budget // there is one layout only
		return units
	}
	for range 2 + s.draw.IntN(6) {
		first := 1 + s.draw.IntN(inner)
		s.shift(units, first, 1+s.draw.IntN(inner-first+1), 1-2*s.draw.IntN(2))
	}
	return units
}

// branch goes through all cuts of a chain with one virtual stage on each stage, and leaves out those
// that cannot be among the best. It reports whether it came to the end within the budget.
//
// A step takes at least, for each stage s,
//
//	Σ_{v<s} f_v + M·(f+i+w)_s + Σ_{v<s} b_v
//
// since the first microbatch comes through the stages before, and the gradient of the last goes back
// through them. b is i+w where backwards are undivided, else i. What is left for the remaining stages is
// at least spread evenly.
func (s *search) branch() bool {
	divided := s.Schedule != schedule.Kind1F1B && s.Schedule != schedule.KindGPipe
	m := float64(s.Microbatches)
	units := make([]int, s.virtual()+1)
	units[s.virtual()] = s.units()
	total := s.sums[s.units()].Seconds()
	var visit func(k int, path float64) bool
	visit = func(k int, path float64) bool {
		if s.used > s.budget {
			return false
		}
		left := s.virtual() - k
		worst := func() float64 {
			if len(s.best) < shown {
				return unfit
			}
			return s.best[shown-1].seconds
		}
		if path+m*(total-s.sums[units[k]].Seconds())/float64(left) > worst() {
			return true
		}
		if left == 1 {
			s.offer(units)
			return true
		}
		lo, hi := s.room(k+1, units[k])
		for u := lo; u <= hi; u++ {
			s.used += 16 // about the work of an instruction or two
			x := s.between(units[k], u)
			if path+m*x.Seconds() > worst() {
				break
			}
			back := x.Input
			if !divided {
				back += x.Weight
			}
			units[k+1] = u
			if !visit(k+1, path+x.Forward+back) {
				return false
			}
		}
		return true
	}
	return visit(0, 0)
}

// bound returns seconds that no order of the work of the evaluated layout beats.
func (v *solver) bound() float64 {
	return sim.LowerBound(v.schedule.Map, v.costs, v.Microbatches, nil)
}

// leastSeconds returns seconds that no layout beats: the work of a stage if all stages had equal work.
func (v *solver) leastSeconds() float64 {
	most := 0.0
	for u := range v.units() {
		most = max(most, v.between(u, u+1).Seconds())
	}
	return max(v.sums[v.units()].Seconds()/float64(v.Stages), most) * float64(v.Microbatches)
}

// reason returns why no layout was found.
func (s *search) reason() error {
	if s.Memory > 0 {
		return fmt.Errorf("no layout was found that needs at most %d bytes on every stage", s.Memory)
	}
	return errors.New("no layout obeys the rules of the trainer")
}
