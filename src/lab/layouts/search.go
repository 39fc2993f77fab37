package layouts

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"dynmo/src/partition"
	"dynmo/src/random"
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
		if v.Chunks == 1 {
			proven = s.branch()
		}
	}
	for until := v.used + budget/patience; !proven && v.used < min(budget, until); {
		before := s.worst(1)
		if s.descend(s.shake()); s.worst(1) < before {
			until = v.used + budget/patience
		}
	}
	if len(s.best) == 0 {
		return outcome{}, s.reason()
	}
	out := outcome{Proven: proven && p.Candidates == nil, Bound: v.leastSeconds()}
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
	last   []int // cuts at which the last descent ended

	nearest int64 // the least bytes of a fullest stage that cuts above the limit had
	illegal error // the last rule that cuts broke
}

// worst returns the seconds of the n-th best cuts; unfit if there are fewer.
func (s *search) worst(n int) float64 {
	if len(s.best) < n {
		return unfit
	}
	return s.best[n-1].seconds
}

// excess returns by how many bytes the stages are above the limit; 0 if cuts obey all rules.
func (s *search) excess(units []int) float64 {
	if s.Legal != nil {
		if err := s.Legal(s.layers(units)); err != nil {
			s.illegal = err
			return unfit
		}
	}
	if s.Memory == 0 {
		return 0
	}
	over := 0.0
	s.used += len(s.list)
	list := s.bytes(units)
	for _, b := range list {
		over += float64(max(0, b-s.Memory))
	}
	if most := slices.Max(list); over > 0 && (s.nearest == 0 || most < s.nearest) {
		s.nearest = most
	}
	return over
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
	if known || s.excess(units) > 0 {
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

// descend moves cuts as long as the step gets shorter. Cuts that break a rule move until they obey it:
// towards stages that need less memory.
func (s *search) descend(units []int) {
	units = slices.Clone(units)
	now, over := s.offer(units), s.excess(units)
	inner := s.virtual() - 1
	for improved := true; improved && s.used < s.budget; {
		improved = false
		for length := 1; length <= inner; length++ {
			for first := 1; first+length-1 <= inner; first++ {
				for _, by := range []int{1, -1} {
					if !s.shift(units, first, length, by) {
						continue
					}
					after := s.offer(units)
					if over == 0 && after >= now {
						s.shift(units, first, length, -by)
						continue
					}
					if x := s.excess(units); x < over || x == over && after < now {
						now, over, improved = after, x, true
					} else {
						s.shift(units, first, length, -by)
					}
				}
			}
		}
	}
	s.last = units
}

// unfit is more than the seconds of a step, or the bytes of a stage, can be.
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

// shake returns one of the best cuts with a few random shifts. If no cuts obey the rules yet, it starts
// from those at which the search stands.
func (s *search) shake() []int {
	units := slices.Clone(s.last)
	if len(s.best) > 0 {
		units = slices.Clone(s.best[s.draw.IntN(len(s.best))].units)
	}
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

// branch goes through all cuts of a chain with one virtual stage on each stage and undivided backwards. It
// leaves out those that cannot be among the best, or need too much memory. It reports whether it came to
// the end within the budget.
//
// A step takes at least, for each stage s,
//
//	Σ_{v<s} f_v + M·(f+b)_s + Σ_{v<s} b_v
//
// since the first microbatch comes through the stages before, and the gradient of the last goes back
// through them. What is left for the remaining stages is at least spread evenly.
func (s *search) branch() bool {
	m := float64(s.Microbatches)
	units := make([]int, s.virtual()+1)
	units[s.virtual()] = s.units()
	total := s.sums[s.units()].Seconds()
	flying := s.schedule.InFlight()
	rooms := s.rooms(flying)
	var visit func(k int, path float64) bool
	visit = func(k int, path float64) bool {
		if s.used > s.budget {
			return false
		}
		left := s.virtual() - k
		if !rooms[k][units[k]] || path+m*(total-s.sums[units[k]].Seconds())/float64(left) > s.worst(shown) {
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
			if path+m*x.Seconds() > s.worst(shown) || !s.holds(flying[k], x) {
				break
			}
			units[k+1] = u
			if !visit(k+1, path+x.Seconds()) {
				return false
			}
		}
		return true
	}
	return visit(0, 0)
}

// rooms returns by stage and unit whether this stage and those behind it may have the memory for the
// units from this one on. Stages have one virtual stage each.
func (s *search) rooms(flying []int) [][]bool {
	list := make([][]bool, s.virtual()+1)
	for k := range list {
		list[k] = make([]bool, s.units()+1)
	}
	list[s.virtual()][s.units()] = true
	for k := s.virtual() - 1; k >= 0; k-- {
		for from := range list[k] {
			for to := from; to <= s.units() && !list[k][from] && s.holds(flying[k], s.between(from, to)); to++ {
				list[k][from] = list[k+1][to]
			}
		}
	}
	return list
}

// holds reports whether a stage may have the memory for some units: for their parameters, and the
// activations of the microbatches that are in flight.
func (s *search) holds(flying int, x sums) bool {
	return s.Memory == 0 || x.static+int64(flying)*x.activations <= s.Memory
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
	if s.nearest > 0 {
		return fmt.Errorf("no layout was found that needs at most %d bytes on every stage; one needs %d", s.Memory, s.nearest)
	}
	if s.illegal != nil {
		return fmt.Errorf("no layout was found that obeys the rules: %w", s.illegal)
	}
	return errors.New("the trainer can make no layout with something on every stage")
}
