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
// frozen, with the ends that are here, and then waits for the messages.
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
	return r.drain()
}

// rows returns the part of the whole tied matrix (weights or gradients) that is
// borrowed.
func rows(whole tensor.Mem, p *model.Param, t model.Tie) tensor.Mem {
	row := whole.Bytes / int64(p.Rows)
	return whole.Span(int64(t.First)*row, int64(t.Rows)*row)
}

// sumTied adds the borrowers' gradients of tied matrices to the owners', tie by
// tie, once, after the last microbatch, also where both are on one stage.
func (r *Runner) sumTied() error {
	return r.trainedTies(func(t model.Tie, owned, lent *model.Param) error {
		if owned == nil {
			req, err := r.group.Send(r.owners[t.Owner], comm.TagTied, lent.G, r.ready())
			r.sends = append(r.sends, req)
			return err
		}
		sum := rows(owned.G, owned, t)
		g := tensor.Mem{}
		if lent != nil {
			g = lent.G
		} else {
			g = r.tied.Span(0, sum.Bytes)
			req, err := r.group.Recv(r.owners[t.Borrower], comm.TagTied, g, r.ready()) // the last sum may still be read
			if err != nil {
				return err
			}
			if err := req.Wait(); err != nil {
				return err
			}
		}
		r.x.Backend.Accumulate(r.x.Stream, sum, sum, g, t.Rows*t.Cols)
		return nil
	})
}

// shareTied gives the borrowers the owners' weights after an update.
func (r *Runner) shareTied() error {
	return r.trainedTies(func(t model.Tie, owned, lent *model.Param) error {
		var req comm.Request
		var err error
		switch {
		case owned != nil && lent != nil:
			r.x.Stream.Copy(lent.W, rows(owned.W, owned, t))
		case owned != nil:
			req, err = r.group.Send(r.owners[t.Borrower], comm.TagTied, rows(owned.W, owned, t), r.ready())
		default:
			req, err = r.group.Recv(r.owners[t.Owner], comm.TagTied, lent.W, r.ready())
		}
		r.sends = append(r.sends, req)
		return err
	})
}
