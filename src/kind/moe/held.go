package moe

import (
	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/piece"
)

// held returns what tells which replicas held the experts of a block in a step; nil where they
// are not spread.
func held(c config.Config) func(pieces piece.Assignment, block int, counted dynamic.Values) dynamic.Held {
	m := config.Of[options](c)
	if !spread(c) || m.BlockRows == 0 {
		return nil
	}
	p := newPlacing(placeCopies, m.Experts, c.Parallel.Replicas, m.Spare, 1)
	return func(pieces piece.Assignment, block int, counted dynamic.Values) (h dynamic.Held) {
		list, all := counted.Rest(), sum(counted)
		if counted.Name != assigned.Name || len(list) != m.Experts || all == 0 {
			return h
		}
		p.check(pieces)
		p.rows = p.rows[:0]
		for _, n := range list {
			p.rows = append(p.rows, int(n))
			h.Shares = append(h.Shares, float64(n)/all)
		}
		for _, on := range p.of(block) {
			h.Holders = append(h.Holders, len(on))
		}
		load := func(on piece.Map) float64 {
			p.dealer.Deal(on, p.rows, 1, p.replicas)
			most := int64(0)
			for _, n := range p.dealer.Loads {
				most = max(most, n)
			}
			return float64(most) * float64(p.replicas) / all
		}
		h.Load, h.Even = load(p.of(block)), load(p.even)
		return h
	}
}
