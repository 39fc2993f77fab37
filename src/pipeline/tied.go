package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// tiedReceiveBytes returns the bytes of memory that sumTied needs to receive a gradient: the largest
// of those of a matrix owned on this stage and borrowed on another stage.
func (r *Runner) tiedReceiveBytes() int64 {
	largest := int64(0)
	for _, t := range r.ties {
		if r.owners[t.Owner] == r.stage() && r.owners[t.Borrower] != r.stage() {
			largest = max(largest, tiedBytes(r.x, t))
		}
	}
	return largest
}

// eachTrainedTie calls visit for every tie that is not frozen and has its owner or its borrower on
// this stage. owned and borrowed are the matrix in these two layers; nil if the layer is on another
// stage.
func (r *Runner) eachTrainedTie(visit func(t model.Tie, owned, borrowed *model.Param) error) error {
	for _, t := range r.ties {
		owned, borrowed := r.s.Param(t.Owner, t.Weight), r.s.Param(t.Borrower, t.Weight)
		if owned == nil && (borrowed == nil || borrowed.Frozen) || owned != nil && owned.Frozen {
			continue
		}
		if err := visit(t, owned, borrowed); err != nil {
			return err
		}
	}
	return nil
}

// borrowedRows returns the rows that tie t borrows. whole is the memory of the owner's matrix p: its
// weights or its gradients.
func borrowedRows(whole tensor.Mem, p *model.Param, t model.Tie) tensor.Mem {
	row := whole.Bytes / int64(p.Rows)
	return whole.Span(int64(t.First)*row, int64(t.Rows)*row)
}

// sliceOfTie returns the slice of a replica in the tied matrix m: the elements that the replica adds
// up or updates. m has the borrowed rows of weights or of gradients. layer is the owner or the
// borrower of tie t. It is on this rank and says which elements these are.
func (r *Runner) sliceOfTie(m tensor.Mem, t model.Tie, layer, replica int) tensor.Mem {
	lo, hi := r.s.Layer(layer).SliceOfTie(t, replica)
	if lo == hi {
		return tensor.Mem{}
	}
	size := m.Bytes / int64(t.Rows*t.Cols)
	return m.Span(int64(lo)*size, int64(hi-lo)*size)
}

// tiedRounds is memory that the rounds of tied matrices reuse.
type tiedRounds struct {
	sends, recvs []comm.Part  // the messages of the next round
	sent         []comm.Round // rounds of sumTied that send and are not waited for yet
}

func (q *tiedRounds) clear() { q.sends, q.recvs = q.sends[:0], q.recvs[:0] }

// exchange begins a round of the messages in sends and recvs.
func (q *tiedRounds) exchange(r *Runner) (comm.Round, error) {
	return r.group.Exchange(comm.TagTied, q.sends, q.recvs, r.ready())
}

// sumTied adds the borrowers' gradients of tied matrices to the owners' gradients, tie by tie. It
// runs once, after the last microbatch, also for ties within a stage. A tie between two stages takes
// a round of its own.
func (r *Runner) sumTied() error {
	q := &r.tiedRounds
	q.sent = q.sent[:0]
	err := r.eachTrainedTie(func(t model.Tie, owned, borrowed *model.Param) error {
		q.clear()
		if owned == nil {
			return r.sendGradient(t, borrowed)
		}
		return r.addGradient(t, owned, borrowed)
	})
	for _, round := range q.sent {
		if err == nil {
			err = round.Wait()
		}
	}
	return err
}

// sendGradient begins to send this replica's slice of the borrower's gradient to the owner.
func (r *Runner) sendGradient(t model.Tie, borrowed *model.Param) error {
	q := &r.tiedRounds
	q.sends = append(q.sends, comm.Part{Rank: r.owners[t.Owner], Mem: r.sliceOfTie(borrowed.G, t, t.Borrower, r.replicas.Rank())})
	round, err := q.exchange(r)
	q.sent = append(q.sent, round)
	return err
}

// addGradient adds this replica's slice of the borrower's gradient to the owner's gradient. If
// borrowed is nil, the borrower's stage sends its slice.
func (r *Runner) addGradient(t model.Tie, owned, borrowed *model.Param) error {
	sum := r.sliceOfTie(borrowedRows(owned.G, owned, t), t, t.Owner, r.replicas.Rank())
	n := int(sum.Bytes / r.x.Backend.DType().Wide().Size())
	if n == 0 {
		return nil
	}
	if borrowed != nil {
		r.x.Backend.Accumulate(r.x.Stream, sum, sum, r.sliceOfTie(borrowed.G, t, t.Owner, r.replicas.Rank()), n)
		return nil
	}
	q, g := &r.tiedRounds, r.tied.Span(0, sum.Bytes) // the Accumulate before may read g until the round begins
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
}

// shareTied copies the owners' weights to the borrowers, after an update of layers that are not
// sliced. All ties take one round together. weightRounds has the rounds of sliced layers.
func (r *Runner) shareTied() error {
	q := &r.tiedRounds
	q.clear()
	err := r.eachTrainedTie(func(t model.Tie, owned, borrowed *model.Param) error {
		switch {
		case owned != nil && borrowed != nil:
			r.x.Stream.Copy(borrowed.W, borrowedRows(owned.W, owned, t))
		case owned != nil:
			q.sends = append(q.sends, comm.Part{Rank: r.owners[t.Borrower], Mem: borrowedRows(owned.W, owned, t)})
		default:
			q.recvs = append(q.recvs, comm.Part{Rank: r.owners[t.Owner], Mem: borrowed.W})
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
