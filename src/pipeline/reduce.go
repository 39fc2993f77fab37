package pipeline

import (
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// reducer sums gradients over replicas, while the backward passes of a step that are left
// go on (see schedule.Sums). A bucket's first round, in which copies travel, begins once the
// gradients of its layers are complete. Each later round begins once all copies of the round
// before have arrived and are added. The order of addition is fixed by construction, which no
// library's allreduce promises. All replicas of a stage execute one list, and begin their
// rounds in one order, whenever that is.
type reducer struct {
	buckets  []bucket
	rounds   []turn // of a step, in order
	talkers  int    // layers that exchange messages with other replicas themselves
	next     int    // the first of rounds that has not begun
	complete int    // layers whose gradients are, in the order of Runner.completed
	talking  int    // talkers that are not complete
}

// turn is a round of a bucket, counted from 0. The last one gathers the sums; it is empty where
// layers are sliced.
type turn struct{ bucket, round int }

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
	last, apart := r.options.Sums.Rounds(r.replicas.Size()), schedule.Lookahead-1
	for i := range len(q.buckets) + last*apart {
		for round := range last + 1 {
			if b := i - round*apart; b >= 0 && b < len(q.buckets) {
				q.rounds = append(q.rounds, turn{b, round})
			}
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
		if t.round == 0 {
			if q.complete < b.layers || q.talking > 0 {
				break
			}
		} else if done, err := b.sums[t.round-1].round.Arrived(); err != nil {
			return err
		} else if !done {
			break
		}
		if t.round == 0 && b.sums[0].rounded == nil { // nothing is computed
			if err := b.begin(r, 0); err != nil {
				return err
			}
			continue
		}
		sum := r.begin(trace.Reduce, -1, schedule.Instr{Microbatch: -1})
		if err := b.begin(r, t.round); err != nil {
			return err
		}
		r.end(sum)
	}
	for _, t := range q.rounds[:q.next] {
		if _, err := q.buckets[t.bucket].exchange(t.round).round.Test(); err != nil {
			return err
		}
	}
	return nil
}

// finish does what is left once all layers are complete.
func (q *reducer) finish(r *Runner) error {
	for ; q.next < len(q.rounds); q.next++ {
		t := q.rounds[q.next]
		if err := q.buckets[t.bucket].begin(r, t.round); err != nil {
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

// begin begins a round of a bucket. Before the first one it rounds what travels, where sums
// round; before any other it waits for the copies of the round before and adds them. What
// receives others' sums was sent before.
func (b *bucket) begin(r *Runner, round int) error {
	if round > 0 {
		a := &b.sums[round-1]
		if err := a.round.Wait(); err != nil {
			return err
		}
		for part := range a.mine {
			a.add(r, part)
		}
	} else {
		for _, g := range b.sums[0].rounded {
			r.x.Backend.Round(r.x.Stream, g.narrow, g.wide, int(g.narrow.Bytes/tensor.BF16.Size()))
		}
	}
	return b.exchange(round).begin(r)
}

// exchange returns the messages of a round.
func (b *bucket) exchange(round int) *exchange {
	if round < len(b.sums) {
		return &b.sums[round].exchange
	}
	return &b.gather
}

// add replaces a part of mine by ((c0 + c1) + c2) + …, c the copies in their order, piece by
// piece. Where copies are as wide as gradients, mine is one of them; the sum of what comes
// before mine is made in the first copy.
func (a *addition) add(r *Runner, part int) {
	for off := int64(0); off < a.mine[part].Bytes; off += sumBytes {
		mine := a.mine[part].Span(off, min(sumBytes, a.mine[part].Bytes-off))
		n := int(mine.Bytes / r.x.Backend.DType().Wide().Size())
		sum := tensor.Mem{}
		for i := range a.copies {
			switch {
			case a.rounded != nil:
				g := a.copies[i][part].Span(r.narrow(off), r.narrow(mine.Bytes))
				r.x.Backend.AccumulateRounded(r.x.Stream, mine, sum, g, n)
				sum = mine
			case i == 0:
				sum = a.copies[i][part].Span(off, mine.Bytes)
			case a.order[i] == r.replicas.Rank():
				r.x.Backend.Accumulate(r.x.Stream, mine, sum, mine, n)
				sum = mine
			default:
				g := a.copies[i][part].Span(off, mine.Bytes)
				r.x.Backend.Accumulate(r.x.Stream, sum, sum, g, n)
			}
		}
	}
}
