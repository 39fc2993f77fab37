package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// line is what shares of replicas are multiples of: a cache line, to which slabs are padded.
const line = 64

// bucket is the gradients of some layers, which are summed over replicas together (see
// schedule.Sums). This replica owns a share of it.
type bucket struct {
	layers int // trained layers of this rank up to the bucket's last, in the order in which they are complete
	sums   []addition
	gather exchange // sends the sum of the own share back; empty where the owner updates it
}

// addition is a round of messages in which copies of some gradients arrive, and their sum.
type addition struct {
	exchange
	mine    []tensor.Mem   // what is added up, in the gradients
	order   []int          // replicas whose copies are added, in this order; this one among them
	copies  [][]tensor.Mem // in that order: their mine
	rounded []rounding     // what is rounded before the round; nil: copies are as wide as gradients
}

// rounding is gradients, and their bfloat16 values.
type rounding struct{ wide, narrow tensor.Mem }

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

// buckets makes the buckets of some layers. A bucket has at most `most` bytes, or one layer.
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
		list = append(list, p.bucket(p.r.shares(layers[begin:end]), end))
		begin = end
	}
	p.copies(list)
	return list
}

// shares returns the gradients of some layers that each replica adds up: slices of each layer
// where masters and moments are sliced, else shares of all layers together.
func (r *Runner) shares(layers []*model.Layer) [][]tensor.Mem {
	var slabs []tensor.Mem
	shares := make([][]tensor.Mem, r.replicas.Size())
	for _, l := range layers {
		slabs = append(slabs, l.Reduced()...)
		for d := range shares {
			shares[d] = append(shares[d], l.SliceOfReduced(d)...)
		}
	}
	if !r.sliced() {
		for d := range shares {
			shares[d] = share(slabs, d, r.replicas.Size())
		}
	}
	return shares
}

// sliced reports whether replicas share out masters and moments.
func (r *Runner) sliced() bool { return r.s.Config.Shards > 0 }

// bucket returns a bucket without copies that is complete once some layers are. shares are its
// gradients by owner. Owners send sums back unless they alone update their share.
func (p *planner) bucket(shares [][]tensor.Mem, layers int) bucket {
	me, replicas, sums := p.r.replicas.Rank(), p.r.replicas.Size(), p.r.options.Sums
	group := sums.GroupOf(me, replicas)
	lo, hi := sums.Members(group, replicas)
	var values, groups addition
	for d := lo; d < hi; d++ {
		values.order = append(values.order, d)
	}
	for k := range sums.Groups(replicas) {
		groups.order = append(groups.order, sums.Adder(me, k, replicas))
	}
	groups.mine = shares[me]
	b := bucket{layers: layers, sums: []addition{values, groups}[:sums.Rounds(replicas)]}
	for owner, parts := range shares {
		adder := sums.Adder(owner, group, replicas)
		for _, m := range parts {
			switch {
			case adder != me:
				b.sums[0].sends = append(b.sums[0].sends, comm.Part{Rank: adder, Mem: m})
			case owner < lo || owner >= hi:
				b.sums[1].sends = append(b.sums[1].sends, comm.Part{Rank: owner, Mem: m})
			}
			if owner != me && !p.r.sliced() {
				b.gather.recvs = append(b.gather.recvs, comm.Part{Rank: owner, Mem: m})
			}
		}
		if adder == me {
			b.sums[0].mine = append(b.sums[0].mine, parts...)
		}
		if owner != me && !p.r.sliced() {
			for _, m := range shares[me] {
				b.gather.sends = append(b.gather.sends, comm.Part{Rank: owner, Mem: m})
			}
		}
	}
	return b
}

// copies gives the additions of buckets room: as much as schedule.Lookahead of them need at a
// time.
func (p *planner) copies(list []bucket) {
	for round := range p.r.options.Sums.Rounds(p.r.replicas.Size()) {
		narrow := round == 0 && p.r.options.Sums.Rounded
		var needs [schedule.Lookahead]int64
		for i := range list {
			needs[i%schedule.Lookahead] = max(needs[i%schedule.Lookahead], p.room(&list[i].sums[round], narrow))
		}
		var rooms [schedule.Lookahead]tensor.Mem
		for i, bytes := range needs {
			rooms[i] = p.OnDevice(bytes)
		}
		if p.err != nil {
			return
		}
		for i := range list {
			p.place(&list[i].sums[round], rooms[i%schedule.Lookahead], narrow)
		}
	}
}

// room returns the bytes of an addition's copies, and of what is rounded for it.
func (p *planner) room(a *addition, narrow bool) int64 {
	own, sent := int64(0), int64(0)
	for _, m := range a.mine {
		own += lines(m) * line
	}
	for _, part := range a.sends {
		sent += lines(part.Mem) * line
	}
	copies := own * int64(len(a.order)-1)
	if narrow {
		return p.r.narrow(copies + own + sent)
	}
	return copies
}

// place lays an addition's copies, and what is rounded for it, into its room.
func (p *planner) place(a *addition, room tensor.Mem, narrow bool) {
	off := int64(0)
	take := func(m tensor.Mem) tensor.Mem {
		bytes, whole := m.Bytes, lines(m)*line
		if narrow {
			bytes, whole = p.r.narrow(bytes), p.r.narrow(whole)
		}
		c := room.Span(off, bytes)
		off += whole
		return c
	}
	round := func(m tensor.Mem) tensor.Mem {
		a.rounded = append(a.rounded, rounding{m, take(m)})
		return a.rounded[len(a.rounded)-1].narrow
	}
	if narrow {
		for i := range a.sends {
			a.sends[i].Mem = round(a.sends[i].Mem)
		}
	}
	a.copies = make([][]tensor.Mem, len(a.order))
	for i, d := range a.order {
		for _, m := range a.mine {
			switch {
			case d != p.r.replicas.Rank():
				c := take(m)
				a.copies[i] = append(a.copies[i], c)
				a.recvs = append(a.recvs, comm.Part{Rank: d, Mem: c})
			case narrow:
				a.copies[i] = append(a.copies[i], round(m))
			default:
				a.copies[i] = append(a.copies[i], m)
			}
		}
	}
}

// narrow returns the bytes that gradients of some bytes have as bfloat16.
func (r *Runner) narrow(bytes int64) int64 {
	return bytes / r.x.Backend.DType().Wide().Size() * tensor.BF16.Size()
}
