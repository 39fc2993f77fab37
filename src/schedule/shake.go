package schedule

const (
	// shakes is how many moves at random lead away from the best order.
	shakes = 6
	// shakeTries is how many moves are drawn for one that is legal, at most.
	shakeTries = 20
	// leastPatience is for how many rounds a search goes on without a better order, at
	// least.
	leastPatience = 32
)

// patience returns for how many rounds the search goes on without a better order: in a
// long step many moves that change little may lead to one.
func (s *search) patience() int { return max(leastPatience, len(s.order)/4) }

// shake goes back to an order and makes some moves at random in it. It returns the
// seconds of the step then.
func (s *search) shake(order []int32) (seconds float64) {
	copy(s.order, order)
	for at, number := range order {
		s.at[number] = int32(at)
	}
	s.count(0, len(order))
	seconds = s.set()
	for made, tries := 0, 0; made < shakes && tries < shakes*shakeTries; tries++ {
		m := move{s.rnd.IntN(len(order)), 1 + s.rnd.IntN(farthest/2)}
		if m.to += m.from; m.to >= len(order) || m.to/s.length != m.from/s.length {
			continue
		}
		if s.rnd.IntN(2) == 0 {
			m = m.back()
		}
		if s.legal(m) {
			seconds = s.take(m)
			made++
		}
	}
	return seconds
}
