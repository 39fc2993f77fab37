package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// reducer sums gradients over replicas. Each replica owns a slice of every slab:
// it receives that slice from all others, adds them in the order of
// replicas, and sends the sum back. The order of addition is fixed by
// construction, which no library's allreduce promises.
type reducer struct {
	slabs    []tensor.Mem     // gradients, in chain order
	copies   [][]tensor.Mem   // by slab, by replica: that replica's copy of my slice; absent for my own
	sum      tensor.Mem       // as large as the largest slice, at most sumBytes
	received [][]comm.Request // by slab, by replica: that copy
	sums     []comm.Request   // on their way
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

func (p *planner) reducer() reducer {
	q, me, replicas, largest := reducer{}, p.r.replicas.Rank(), p.r.replicas.Size(), int64(0)
	if replicas == 1 {
		return q
	}
	for _, l := range p.r.s.Layers {
		q.slabs = append(q.slabs, l.Reduced()...)
	}
	for _, slab := range q.slabs {
		mine := slice(slab, me, replicas)
		largest = max(largest, mine.Bytes)
		copies := make([]tensor.Mem, replicas)
		for d := range copies {
			if d != me {
				copies[d] = p.take(mine.Bytes)
			}
		}
		q.copies = append(q.copies, copies)
		q.received = append(q.received, make([]comm.Request, replicas))
	}
	q.sum = p.take(min(largest, sumBytes))
	return q
}

// run sums all slabs. All messages of all slabs are begun at once; slabs are
// added as their slices arrive, in chain order.
func (q *reducer) run(r *Runner) error {
	replicas, me := r.replicas.Size(), r.replicas.Rank()
	if replicas == 1 {
		return nil
	}
	ready := r.ready()
	recv := func(from int, m tensor.Mem) (comm.Request, error) {
		if m.Bytes == 0 {
			return comm.Request{}, nil
		}
		return r.replicas.Recv(from, comm.TagReduce, m, ready)
	}
	send := func(to int, m tensor.Mem) error {
		if m.Bytes == 0 {
			return nil
		}
		req, err := r.replicas.Send(to, comm.TagReduce, m, ready)
		r.sends = append(r.sends, req)
		return err
	}

	for i, slab := range q.slabs {
		for d := range replicas {
			if d == me {
				continue
			}
			var err error
			if q.received[i][d], err = recv(d, q.copies[i][d]); err != nil {
				return err
			}
			if err := send(d, slice(slab, d, replicas)); err != nil {
				return err
			}
		}
	}
	// A slice that others are still fetching must not be overwritten by their sums.
	for i, slab := range q.slabs {
		if err := waitAll(q.received[i]); err != nil {
			return err
		}
		q.add(r, i, slice(slab, me, replicas))
	}
	if err := r.drain(); err != nil {
		return err
	}
	ready = r.ready()
	q.sums = q.sums[:0]
	for _, slab := range q.slabs {
		for d := range replicas {
			if d == me {
				continue
			}
			req, err := recv(d, slice(slab, d, replicas))
			if err != nil {
				return err
			}
			q.sums = append(q.sums, req)
			if err := send(d, slice(slab, me, replicas)); err != nil {
				return err
			}
		}
	}
	if err := waitAll(q.sums); err != nil {
		return err
	}
	return r.drain()
}

// add replaces my slice of a slab by ((g0 + g1) + g2) + …, piece by piece.
func (q *reducer) add(r *Runner, i int, mine tensor.Mem) {
	me := r.replicas.Rank()
	for off := int64(0); off < mine.Bytes; off += sumBytes {
		length := min(sumBytes, mine.Bytes-off)
		n := int(length / r.x.Backend.DType().Wide().Size())
		operand := func(d int) tensor.Mem {
			if d == me {
				return mine.Span(off, length)
			}
			return q.copies[i][d].Span(off, length)
		}
		sum := q.sum.Span(0, length)
		r.x.Backend.Accumulate(r.x.Stream, sum, operand(0), operand(1), n)
		for d := 2; d < r.replicas.Size(); d++ {
			r.x.Backend.Accumulate(r.x.Stream, sum, sum, operand(d), n)
		}
		r.x.Stream.Copy(operand(me), sum)
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
