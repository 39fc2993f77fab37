package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// reducer sums gradients over replicas. Each replica owns a slice of every
// layer: it receives that slice from all others, adds them in the order of
// replicas, and sends the sum back. The order of addition is fixed by
// construction, which no library's allreduce promises.
type reducer struct {
	parts [][]tensor.Mem   // by layer, by replica: that replica's copy of my slice; absent for my own
	sum   tensor.Mem       // as large as the largest slice, at most sumBytes
	come  [][]comm.Request // by layer, by replica: that copy on its way
	sums  []comm.Request   // on their way
}

// slice returns replica d's slice of a slab: whole cache lines, all of nearly
// equal length.
func slice(slab tensor.Mem, d, replicas int) tensor.Mem {
	const line = 64
	lines := (slab.Bytes + line - 1) / line
	lo := min(int64(d)*lines/int64(replicas)*line, slab.Bytes)
	hi := min(int64(d+1)*lines/int64(replicas)*line, slab.Bytes)
	return slab.Span(lo, hi-lo)
}

func (q *reducer) plan(p *planner, s *model.Stage, replicas int) {
	*q = reducer{}
	if replicas == 1 {
		return
	}
	me, largest := p.r.Replicas.Rank(), int64(0)
	for _, l := range s.Layers {
		mine := slice(l.Gradients(), me, replicas)
		largest = max(largest, mine.Bytes)
		parts := make([]tensor.Mem, replicas)
		for d := range parts {
			if d != me {
				parts[d] = p.take(mine.Bytes)
			}
		}
		q.parts = append(q.parts, parts)
		q.come = append(q.come, make([]comm.Request, replicas))
	}
	q.sum = p.take(min(largest, sumBytes))
}

// run sums the gradients of all layers. All messages of all layers are begun
// at once; layers are added as their slices arrive, in chain order.
func (q *reducer) run(r *Runner, s *model.Stage) error {
	replicas, me := r.Replicas.Size(), r.Replicas.Rank()
	if replicas == 1 {
		return nil
	}
	ready := r.ready()
	recv := func(from int, m tensor.Mem) (comm.Request, error) {
		if m.Bytes == 0 {
			return comm.Request{}, nil
		}
		return r.Replicas.Recv(from, comm.TagReduce, m, ready)
	}
	send := func(to int, m tensor.Mem) error {
		if m.Bytes == 0 {
			return nil
		}
		req, err := r.Replicas.Send(to, comm.TagReduce, m, ready)
		r.sends = append(r.sends, req)
		return err
	}

	for i, l := range s.Layers {
		for d := range replicas {
			if d == me {
				continue
			}
			var err error
			if q.come[i][d], err = recv(d, q.parts[i][d]); err != nil {
				return err
			}
			if err := send(d, slice(l.Gradients(), d, replicas)); err != nil {
				return err
			}
		}
	}
	// A slice that others are still fetching must not be overwritten by their sums.
	for i, l := range s.Layers {
		if err := waitAll(q.come[i]); err != nil {
			return err
		}
		q.add(r, i, slice(l.Gradients(), me, replicas))
	}
	if err := r.drain(); err != nil {
		return err
	}
	ready = r.ready()
	q.sums = q.sums[:0]
	for _, l := range s.Layers {
		for d := range replicas {
			if d == me {
				continue
			}
			req, err := recv(d, slice(l.Gradients(), d, replicas))
			if err != nil {
				return err
			}
			q.sums = append(q.sums, req)
			if err := send(d, slice(l.Gradients(), me, replicas)); err != nil {
				return err
			}
		}
	}
	if err := waitAll(q.sums); err != nil {
		return err
	}
	return r.drain()
}

// add replaces my slice of layer i by ((g0 + g1) + g2) + …, piece by piece.
func (q *reducer) add(r *Runner, i int, mine tensor.Mem) {
	me := r.Replicas.Rank()
	for off := int64(0); off < mine.Bytes; off += sumBytes {
		length := min(sumBytes, mine.Bytes-off)
		n := int(length / r.Exec.Backend.DType().Wide().Size())
		operand := func(d int) tensor.Mem {
			if d == me {
				return mine.Span(off, length)
			}
			return q.parts[i][d].Span(off, length)
		}
		sum := q.sum.Span(0, length)
		r.Exec.Backend.Accumulate(r.Exec.Stream, sum, operand(0), operand(1), n)
		for d := 2; d < r.Replicas.Size(); d++ {
			r.Exec.Backend.Accumulate(r.Exec.Stream, sum, sum, operand(d), n)
		}
		r.Exec.Stream.Copy(operand(me), sum)
	}
}

// waitAll waits for requests; zero ones had nothing to carry.
func waitAll(reqs []comm.Request) error {
	for _, req := range reqs {
		if err := req.Wait(); err != nil {
			return err
		}
	}
	return nil
}
