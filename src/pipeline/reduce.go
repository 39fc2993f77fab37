package pipeline

import (
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// reducer sums gradients over replicas, while the backward passes of a step that are left
// go on: a bucket's first round, in which copies travel, begins once the gradients of its
// layers are complete; its second, in which sums do, once all copies have arrived and are
// added. The order of addition is fixed by construction, which no library's allreduce
// promises. All replicas of a stage execute one list, and begin their rounds in one order,
// whenever that is.
type reducer struct {
	buckets  []bucket
	rounds   []turn // of a step, in order
	talkers  int    // layers that exchange messages with other replicas themselves
	next     int    // the first of rounds that has not begun
	complete int    // layers whose gradients are, in the order of Runner.completed
	talking  int    // talkers that are not complete
}

// turn is a round of a bucket: its first, or its second.
type turn struct {
	bucket int
	gather bool
}

func (p *planner) reducer() reducer {
	q, r := reducer{}, p.r
	if r.replicas.Size() == 1 {
		return q
	}
	most := r.options.Bucket
	if most == 0 {
		most = schedule.BucketBytes(r.replicas.Size())
	}
	layers := r.completed()
	q.buckets = p.buckets(layers, most)
	for i := range len(q.buckets) + schedule.Lookahead - 1 {
		if i < len(q.buckets) {
			q.rounds = append(q.rounds, turn{bucket: i})
		}
		if i >= schedule.Lookahead-1 {
			q.rounds = append(q.rounds, turn{bucket: i - schedule.Lookahead + 1, gather: true})
		}
	}
	for _, l := range layers {
		if l.Traits.Talks {
			q.talkers++
		}
	}
	return q
}

// restart begins a step.
func (q *reducer) restart() { q.next, q.complete, q.talking = 0, 0, q.talkers }

// completed notes that the gradients of a layer are complete. Rounds wait until those of
// all layers are that talk: else some replicas would begin rounds before the messages of a
// layer and some behind.
func (q *reducer) completed(talks bool) {
	q.complete++
	if talks {
		q.talking--
	}
}

// advance begins the rounds whose turn it is, and drives those under way.
func (q *reducer) advance(r *Runner) error {
	for ; q.next < len(q.rounds); q.next++ {
		t := q.rounds[q.next]
		b := &q.buckets[t.bucket]
		if !t.gather {
			if q.complete < b.layers || q.talking > 0 {
				break
			}
			if err := b.scatter.begin(r); err != nil {
				return err
			}
			continue
		}
		done, err := b.scatter.round.Arrived()
		if err != nil {
			return err
		}
		if !done {
			break
		}
		sum := r.begin(trace.Reduce, -1, schedule.Instr{Microbatch: -1})
		if err := b.sum(r); err != nil {
			return err
		}
		r.end(sum)
	}
	for _, t := range q.rounds[:q.next] {
		b := &q.buckets[t.bucket]
		e := &b.scatter
		if t.gather {
			e = &b.gather
		}
		if _, err := e.round.Test(); err != nil {
			return err
		}
	}
	return nil
}

// finish does what is left once all layers are complete.
func (q *reducer) finish(r *Runner) error {
	for ; q.next < len(q.rounds); q.next++ {
		t := q.rounds[q.next]
		b := &q.buckets[t.bucket]
		var err error
		if t.gather {
			err = b.sum(r)
		} else {
			err = b.scatter.begin(r)
		}
		if err != nil {
			return err
		}
	}
	for i := range q.buckets {
		if err := q.buckets[i].gather.round.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// sum waits for the copies of a bucket, adds them and begins to send the sums. What
// receives others' sums was sent before.
func (b *bucket) sum(r *Runner) error {
	if err := b.scatter.round.Wait(); err != nil {
		return err
	}
	for i := range b.mine {
		b.add(r, i)
	}
	return b.gather.begin(r)
}

// add replaces a part of my share by ((g0 + g1) + g2) + …, piece by piece. The sum of what
// comes before mine is made in the first copy.
func (b *bucket) add(r *Runner, part int) {
	me := r.replicas.Rank()
	for off := int64(0); off < b.mine[part].Bytes; off += sumBytes {
		length := min(sumBytes, b.mine[part].Bytes-off)
		n := int(length / r.x.Backend.DType().Wide().Size())
		mine, sum := b.mine[part].Span(off, length), tensor.Mem{}
		for d := range b.copies {
			g := mine
			if d != me {
				g = b.copies[d][part].Span(off, length)
			}
			switch {
			case d == 0:
				sum = g
			case d == me:
				r.x.Backend.Accumulate(r.x.Stream, mine, sum, mine, n)
				sum = mine
			default:
				r.x.Backend.Accumulate(r.x.Stream, sum, sum, g, n)
			}
		}
	}
}
