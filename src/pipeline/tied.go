package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// borrowedAfar returns the bytes of the largest gradient of a matrix owned here
// that another stage borrows.
func (r *Runner) borrowedAfar() int64 {
	largest := int64(0)
	for _, t := range r.ties {
		if r.owners[t.Owner] == r.stage() && r.owners[t.Borrower] != r.stage() {
			largest = max(largest, tiedBytes(r.x, t))
		}
	}
	return largest
}

// trainedTies calls visit for every tie one of whose ends is here, unless it is
// frozen, with the ends that are here.
func (r *Runner) trainedTies(visit func(t model.Tie, owned, lent *model.Param) error) error {
	for _, t := range r.ties {
		owned, lent := r.s.Param(t.Owner, t.Weight), r.s.Param(t.Borrower, t.Weight)
		if owned == nil && (lent == nil || lent.Frozen) || owned != nil && owned.Frozen {
			continue
		}
		if err := visit(t, owned, lent); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the part of the whole tied matrix (weights or gradients) that is
// borrowed.
func rows(whole tensor.Mem, p *model.Param, t model.Tie) tensor.Mem {
	row := whole.Bytes / int64(p.Rows)
	return whole.Span(int64(t.First)*row, int64(t.Rows)*row)
}

// slice returns a replica's slice of a tied matrix, gradients or weights: the part that the replica
// adds up or updates. One of the tie's layers, which is on this rank, defines it.
func (r *Runner) slice(m tensor.Mem, t model.Tie, layer, replica int) tensor.Mem {
	lo, hi := r.s.Layer(layer).SliceOfTie(t, replica)
	if lo == hi {
		return tensor.Mem{}
	}
	size := m.Bytes / int64(t.Rows*t.Cols)
	return m.Span(int64(lo)*size, int64(hi-lo)*size)
}

// tiedRounds is what of the rounds of tied matrices is kept from one to the next.
type tiedRounds struct {
	sends, recvs []comm.Part
	sent         []comm.Round // not waited for yet
}

func (q *tiedRounds) clear() { q.sends, q.recvs = q.sends[:0], q.recvs[:0] }

// exchange begins a round of what was noted.
func (q *tiedRounds) exchange(r *Runner) (comm.Round, error) {
	return r.group.Exchange(comm.TagTied, q.sends, q.recvs, r.ready())
}

// sumTied adds the borrowers' gradients of tied matrices to the owners', tie by tie. It runs once,
// after the last microbatch, also where both are on one stage. Each tie between two stages is a
// round.
func (r *Runner) sumTied() error {
	q := &r.tiedRounds
	q.sent = q.sent[:0]
	err := r.trainedTies(func(t model.Tie, owned, lent *model.Param) error {
		q.clear()
		if owned == nil {
			q.sends = append(q.sends, comm.Part{Rank: r.owners[t.Owner], Mem: r.slice(lent.G, t, t.Borrower, r.replicas.Rank())})
			round, err := q.exchange(r)
			q.sent = append(q.sent, round)
			return err
		}
		sum := r.slice(rows(owned.G, owned, t), t, t.Owner, r.replicas.Rank())
		n := int(sum.Bytes / r.x.Backend.DType().Wide().Size())
		if n == 0 {
			return nil
		}
		if lent != nil {
			r.x.Backend.Accumulate(r.x.Stream, sum, sum, r.slice(lent.G, t, t.Owner, r.replicas.Rank()), n)
			return nil
		}
		g := r.tied.Span(0, sum.Bytes) // the last sum may read it until the round begins
		q.recvs = append(q.recvs, comm.Part{Rank: r.owners[t.Borrower], Mem: g})
		round, err := q.exchange(r)
		if err == nil {
			err = round.Wait()
		}
		if err != nil {
			return err
		}
		r.x.Backend.Accumulate(r.x.Stream, sum, sum, g, n)
		return nil
	})
	for _, round := range q.sent {
		if err == nil {
			err = round.Wait()
		}
	}
	return err
}

// shareTied gives the borrowers the owners' weights after an update of layers that are not
// sliced, in one round (see weightRounds).
func (r *Runner) shareTied() error {
	q := &r.tiedRounds
	q.clear()
	err := r.trainedTies(func(t model.Tie, owned, lent *model.Param) error {
		switch {
		case owned != nil && lent != nil:
			r.x.Stream.Copy(lent.W, rows(owned.W, owned, t))
		case owned != nil:
			q.sends = append(q.sends, comm.Part{Rank: r.owners[t.Borrower], Mem: rows(owned.W, owned, t)})
		default:
			q.recvs = append(q.recvs, comm.Part{Rank: r.owners[t.Owner], Mem: lent.W})
		}
		return nil
	})
	if err != nil {
		return err
	}
	round, err := q.exchange(r)
	if err != nil {
		return err
	}
	return round.Wait()
}
