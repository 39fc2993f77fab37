package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// A tied embedding's matrix has one owner, the embedding on stage 0, and
// borrowers: the head, or its slices, each with its rows, on whatever stages.

// borrowers calls visit for every slice of the head that borrows the tied
// matrix, in order, with its stage and, on that stage, its parameter; for none
// if nothing is tied.
func (r *Runner) borrowers(s *model.Stage, visit func(slice, stage int, p *model.Param) error) error {
	if !s.Config.Tied {
		return nil
	}
	for k := range s.Config.Slices() {
		id := s.Config.Head() + k
		var p *model.Param
		if l := s.Layer(id); l != nil {
			p = l.Tied()
		}
		if err := visit(k, r.owners[id], p); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the part of the whole tied matrix (weights or gradients) that
// slice k of the head borrows.
func rows(whole tensor.Mem, c model.Config, k int) tensor.Mem {
	lo, hi := c.Slice(k)
	row := whole.Bytes / int64(c.Vocab)
	return whole.Span(int64(lo)*row, int64(hi-lo)*row)
}

// sumTied adds the borrowers' gradients of the tied matrix to the embedding's:
// embedding + head, slice by slice, once, after the last microbatch, also where
// they are on one stage.
func (r *Runner) sumTied(s *model.Stage) error {
	err := r.borrowers(s, func(slice, stage int, p *model.Param) error {
		if r.stage() > 0 {
			if p == nil {
				return nil
			}
			req, err := r.Group.Send(0, comm.TagTied, p.G, r.ready())
			r.sends = append(r.sends, req)
			return err
		}
		sum := rows(s.Layers[0].Tied().G, s.Config, slice)
		g := tensor.Mem{}
		if p != nil {
			g = p.G
		} else {
			g = r.tied.Span(0, sum.Bytes)
			req, err := r.Group.Recv(stage, comm.TagTied, g, r.ready()) // what was added last may still be read
			if err != nil {
				return err
			}
			if err := req.Wait(); err != nil {
				return err
			}
		}
		r.Exec.Backend.Accumulate(r.Exec.Stream, sum, sum, g, int(sum.Bytes/r.Exec.Backend.DType().Wide().Size()))
		return nil
	})
	if err != nil {
		return err
	}
	return r.drain()
}

// ShareTied gives the borrowers the embedding's weights after an update.
func (r *Runner) ShareTied(s *model.Stage) error {
	err := r.borrowers(s, func(slice, stage int, p *model.Param) error {
		var req comm.Request
		var err error
		switch {
		case r.stage() == 0 && p != nil:
			r.Exec.Stream.Copy(p.W, rows(s.Layers[0].Tied().W, s.Config, slice))
		case r.stage() == 0:
			req, err = r.Group.Send(stage, comm.TagTied, rows(s.Layers[0].Tied().W, s.Config, slice), r.ready())
		case p != nil:
			req, err = r.Group.Recv(0, comm.TagTied, p.W, r.ready())
		}
		r.sends = append(r.sends, req)
		return err
	})
	if err != nil {
		return err
	}
	return r.drain()
}
