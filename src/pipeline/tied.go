package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// A tied embedding's matrix has one owner, the embedding on stage 0, and
// borrowers: the head, or its slices, each with its rows, on whatever stages.

// borrowers calls visit for every layer that borrows the tied matrix, in chain
// order, with its stage and, on that stage, its copy; for none if nothing is tied.
func (r *Runner) borrowers(s *model.Stage, visit func(stage int, copy *model.Param) error) error {
	if !s.Config.Tied {
		return nil
	}
	for id := s.Config.Head(); id < s.Config.Layers(); id++ {
		var copy *model.Param
		if l := s.Layer(id); l != nil {
			copy = l.Tied()
		}
		if err := visit(r.cuts.Stage(id), copy); err != nil {
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
	slice := -1
	err := r.borrowers(s, func(stage int, copy *model.Param) error {
		slice++
		if r.stage() > 0 {
			if copy == nil {
				return nil
			}
			req, err := r.Group.Send(0, comm.TagTied, copy.G, r.ready())
			r.sends = append(r.sends, req)
			return err
		}
		sum := rows(s.Layers[0].Tied().G, s.Config, slice)
		g := tensor.Mem{}
		if copy != nil {
			g = copy.G
		} else {
			g = r.tied.Span(0, sum.Bytes)
			if err := r.Exec.Stream.Sync(); err != nil { // what was added last may still be read
				return err
			}
			req, err := r.Group.Recv(stage, comm.TagTied, g)
			if err != nil {
				return err
			}
			if err := req.Wait(); err != nil {
				return err
			}
		}
		r.Exec.Backend.Add(r.Exec.Stream, sum, sum, g, int(sum.Bytes/r.Exec.Backend.DType().Size()))
		return nil
	})
	if err != nil {
		return err
	}
	return r.drain()
}

// ShareTied gives the borrowers the embedding's weights after an update.
func (r *Runner) ShareTied(s *model.Stage) error {
	slice := -1
	err := r.borrowers(s, func(stage int, copy *model.Param) error {
		slice++
		var req comm.Request
		var err error
		switch {
		case r.stage() == 0 && copy != nil:
			r.Exec.Stream.Copy(copy.W, rows(s.Layers[0].Tied().W, s.Config, slice))
		case r.stage() == 0:
			req, err = r.Group.Send(stage, comm.TagTied, rows(s.Layers[0].Tied().W, s.Config, slice), r.ready())
		case copy != nil:
			req, err = r.Group.Recv(0, comm.TagTied, copy.W)
		}
		r.sends = append(r.sends, req)
		return err
	})
	if err != nil {
		return err
	}
	return r.drain()
}
