package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// line is what shares of replicas are multiples of: a cache line, to which slabs are padded.
const line = 64

// bucket is the gradients of some layers, which are summed over replicas together. Each
// replica owns a share: it receives that share from all others, adds them in the order of
// replicas, and sends the sum back.
type bucket struct {
	layers          int            // trained layers of this rank up to the bucket's last, in the order in which they are complete
	mine            []tensor.Mem   // this replica's share
	copies          [][]tensor.Mem // by replica: its mine; absent of this one
	scatter, gather exchange
}

// exchange is the messages of a round, and the round once it has begun.
type exchange struct {
	sends, recvs []comm.Part
	round        comm.Round
}

func (e *exchange) begin(r *Runner) (err error) {
	e.round, err = r.replicas.Exchange(comm.TagReduce, e.sends, e.recvs, r.ready())
	return err
}

// share returns replica d's share of some slabs: of the slabs one behind the other, the
// d-th of nearly equal parts.
func share(slabs []tensor.Mem, d, replicas int) []tensor.Mem {
	total := int64(0)
	for _, slab := range slabs {
		total += lines(slab)
	}
	lo, hi := int64(d)*total/int64(replicas), int64(d+1)*total/int64(replicas)
	var list []tensor.Mem
	for _, slab := range slabs {
		n := lines(slab)
		if from, to := max(lo, 0), min(hi, n); from < to {
			list = append(list, slab.Span(from*line, min(to*line, slab.Bytes)-from*line))
		}
		lo, hi = lo-n, hi-n
	}
	return list
}

func lines(m tensor.Mem) int64 { return (m.Bytes + line - 1) / line }

// completed returns this rank's trained layers in the order in which a step completes their
// gradients: the weights of the last microbatch come last, from the last layer of a chunk
// to its first.
func (r *Runner) completed() []*model.Layer {
	var list []*model.Layer
	for _, in := range r.list {
		if !r.schedule.Completes(in) {
			continue
		}
		c := r.chunks[in.Chunk]
		for i := len(c.layers) - 1; i >= 0; i-- {
			if c.layers[i].Trains() {
				list = append(list, c.layers[i])
			}
		}
	}
	return list
}

// buckets makes the buckets of some layers, each of at most so many bytes or one layer.
func (p *planner) buckets(layers []*model.Layer, most int64) []bucket {
	summed := make([]int64, len(layers))
	for i, l := range layers {
		for _, slab := range l.Reduced() {
			summed[i] += slab.Bytes
		}
	}
	var list []bucket
	begin := 0
	for _, end := range schedule.Buckets(summed, most) {
		var slabs []tensor.Mem
		for _, l := range layers[begin:end] {
			slabs = append(slabs, l.Reduced()...)
		}
		list = append(list, p.bucket(slabs, end))
		begin = end
	}
	p.copies(list)
	return list
}

// bucket returns a bucket without copies that is complete once some layers are.
func (p *planner) bucket(slabs []tensor.Mem, layers int) bucket {
	me, replicas := p.r.replicas.Rank(), p.r.replicas.Size()
	b := bucket{layers: layers, mine: share(slabs, me, replicas)}
	for d := range replicas {
		if d == me {
			continue
		}
		for _, m := range share(slabs, d, replicas) {
			b.scatter.sends = append(b.scatter.sends, comm.Part{Rank: d, Mem: m})
			b.gather.recvs = append(b.gather.recvs, comm.Part{Rank: d, Mem: m})
		}
		for _, m := range b.mine {
			b.gather.sends = append(b.gather.sends, comm.Part{Rank: d, Mem: m})
		}
	}
	return b
}

// copies gives the buckets room for the others' copies of their shares: as much as
// schedule.Lookahead of them need at a time.
func (p *planner) copies(list []bucket) {
	me, replicas := p.r.replicas.Rank(), p.r.replicas.Size()
	needs := make([]int64, schedule.Lookahead)
	for i, b := range list {
		own := int64(0)
		for _, m := range b.mine {
			own += lines(m) * line
		}
		needs[i%schedule.Lookahead] = max(needs[i%schedule.Lookahead], own*int64(replicas-1))
	}
	rooms := make([]tensor.Mem, schedule.Lookahead)
	for i, bytes := range needs {
		rooms[i] = p.OnDevice(bytes)
	}
	if p.err != nil {
		return
	}
	for i := range list {
		b, room := &list[i], rooms[i%schedule.Lookahead]
		b.copies = make([][]tensor.Mem, replicas)
		for d, off := 0, int64(0); d < replicas; d++ {
			if d == me {
				continue
			}
			for _, m := range b.mine {
				c := room.Span(off, m.Bytes)
				off += lines(m) * line
				b.copies[d] = append(b.copies[d], c)
				b.scatter.recvs = append(b.scatter.recvs, comm.Part{Rank: d, Mem: c})
			}
		}
	}
}
