package local

import (
	"cmp"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// split collects the arguments of the ranks of a group in one call of Split.
type split struct {
	asked []ask
	ready chan struct{} // closed when the last rank has called; ranks and err are set
	ranks []*member     // by rank of the group that splits; nil: in no group
	err   error
}

type ask struct{ rank, color, key int }

// Rank returns this rank in the group.
func (r *member) Rank() int { return r.rank }

// Size returns the number of ranks in the group.
func (r *member) Size() int { return len(r.group.peers) }

// Peer describes a rank of the group.
func (r *member) Peer(rank int) comm.Peer { return r.group.peers[rank] }

// Stamp does nothing: messages always carry a stamp.
func (r *member) Stamp(bool) {}

// Alloc gives memory of Go's heap: the copies are Go's too.
func (r *member) Alloc(bytes int64) (tensor.Mem, error) {
	return tensor.From(make([]byte, bytes)), nil
}

// Free leaves the memory to the garbage collector.
func (r *member) Free(tensor.Mem) {}

// Split forms groups of the ranks with equal color, and none of those with a
// negative one. It returns when every rank of the group has called it, or the
// world has failed.
func (r *member) Split(color, key int) (comm.Transport, error) {
	g := r.group
	g.mu.Lock()
	s := g.splits[r.splits]
	if s == nil {
		s = &split{ready: make(chan struct{})}
		g.splits[r.splits] = s
	}
	s.asked = append(s.asked, ask{r.rank, color, key})
	if len(s.asked) == len(g.peers) {
		delete(g.splits, r.splits)
		s.form(g)
		close(s.ready)
	}
	g.mu.Unlock()
	r.splits++
	select {
	case <-s.ready:
	case <-g.world.failed:
		return nil, g.world.cause
	}
	if s.err != nil {
		return nil, s.err
	}
	if part := s.ranks[r.rank]; part != nil {
		return part, nil
	}
	return nil, nil
}

// form makes the groups once all ranks have called.
func (s *split) form(g *group) {
	slices.SortFunc(s.asked, func(a, b ask) int {
		return cmp.Or(cmp.Compare(a.color, b.color), cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank))
	})
	s.ranks = make([]*member, len(s.asked))
	for rest := s.asked; len(rest) > 0; {
		end := 1
		for end < len(rest) && rest[end].color == rest[0].color {
			end++
		}
		members := rest[:end]
		rest = rest[end:]
		if members[0].color < 0 {
			continue
		}
		peers := make([]comm.Peer, len(members))
		for i, m := range members {
			peers[i] = g.peers[m.rank]
		}
		part, err := g.world.add(peers)
		if err != nil {
			s.err = err
			return
		}
		for i, m := range members {
			s.ranks[m.rank] = &member{group: part, rank: i}
		}
	}
}

// Close leaves the group; the last rank to do so removes it.
func (r *member) Close() error {
	g := r.group
	g.mu.Lock()
	g.closed++
	last := g.closed == len(g.peers)
	g.mu.Unlock()
	if last {
		g.world.remove(g)
	}
	return nil
}
