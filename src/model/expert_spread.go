package model

import (
	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Experts of a block may be spread over the replicas of a stage, each of which has as many,
// one behind the other: expert e lies on replica e/(Count/Spread). Each replica dispatches
// the tokens of its own microbatch. Then replicas exchange rows, all to all: tokens go to
// their experts' replicas and what these make of them comes back, and so do gradients. Each
// replica does so in the same passes in the same order, also without any token, for its
// experts may have those of others.
//
// The rows that an expert works on lie in the order of the replicas that they are of, so
// that all sums have a fixed order.

// replicas returns over how many replicas the experts are spread.
func (e Experts) replicas() int { return max(1, e.Spread) }

// here returns how many experts of a block a layer of a replica has.
func (e Experts) here() int { return e.Count / e.replicas() / max(1, e.Groups) }

// firstOf returns the first expert that a replica has.
func (e Experts) firstOf(replica int) int { return replica % e.replicas() * e.here() }

// rows returns the most rows that the experts of a replica work on, of microbatches of so
// many tokens.
func (e Experts) rows(tokens int) int {
	if e.Spread == 0 && e.Groups == 0 {
		return tokens * e.Top
	}
	return e.replicas() * min(tokens*min(e.Top, e.here()), e.room(tokens)*e.here())
}

// rowsAtOnce returns the most rows that experts work on in one product: of one of them
// where they are spread, else of all.
func (e Experts) rowsAtOnce(tokens int) int {
	if e.Spread == 0 {
		return tokens * e.Top
	}
	return e.Spread * e.room(tokens)
}

func (e *experts) talks() bool { return e.Spread > 0 }

// spreads panics unless the stage has the replicas that experts are spread over, each as many.
func (e Experts) spreads(x *Exec) {
	switch {
	case e.Spread == 0:
	case x.Replicas == nil || x.Replicas.Size() != e.Spread:
		panic("model: experts are spread over other replicas than the stage has")
	case e.Count%e.Spread != 0:
		panic("model: replicas do not share experts out evenly")
	}
}

// outgoing returns where rows of the assignments wait for their way to the experts, and
// where what experts make of rows waits for its way back: without a way where it is wanted.
func (e *experts) outgoing(x *Exec, inp, made tensor.Mem) (there, back tensor.Mem) {
	if e.Spread == 0 {
		return inp, made
	}
	return made, x.made
}

// tell exchanges how many rows of each replica each expert works on.
func (e *experts) tell(x *Exec, d *Dispatch) error {
	if e.Spread == 0 {
		return nil
	}
	here, me := e.here(), x.Replicas.Rank()
	counts := tensor.Of[int32](x.counts) // of the tokens here, by expert; then of each replica's, by expert that is here
	of := func(replica, first int) tensor.Mem {
		size := tensor.I32.Size()
		return x.counts.Span(int64(first+replica*here)*size, int64(here)*size)
	}
	for k := range e.Count {
		lo, hi := d.of(k)
		counts[k] = int32(hi - lo)
	}
	x.requests = x.requests[:0]
	for i := 1; i < e.Spread; i++ {
		replica := (me + i) % e.Spread
		if err := x.swap(replica, of(replica, e.Count), of(replica, 0), nil); err != nil {
			return err
		}
	}
	copy(tensor.Of[int32](of(me, e.Count)), tensor.Of[int32](of(me, 0)))
	if err := x.wait(); err != nil {
		return err
	}
	for i, count := range counts[e.Count:] {
		d.worked[i%here*e.Spread+i/here+1] = count
	}
	for i := range e.Count {
		d.worked[i+1] += d.worked[i]
	}
	return nil
}

// way is a direction of rows between replicas.
type way bool

const (
	there way = false // from the tokens' replicas to the experts'
	back  way = true
)

// exchange copies rows between the memory of the assignments, by place, and that of the
// rows that the experts here work on, one message for each expert and other replica. It
// waits for those of the others.
func (e *experts) exchange(x *Exec, d *Dispatch, w way, assigned, worked tensor.Mem) error {
	if e.Spread == 0 {
		return nil
	}
	x.event = x.Stream.Record(x.event)
	x.requests = x.requests[:0]
	here, me := e.here(), x.Replicas.Rank()
	for i := range e.Spread {
		replica := (me + i) % e.Spread
		for k := range here {
			lo, hi := d.of(e.firstOf(replica) + k)
			out := between(x, assigned, lo, hi, e.hidden)
			first, end := d.worked[k*e.Spread+replica], d.worked[k*e.Spread+replica+1]
			in := between(x, worked, int(first), int(end), e.hidden)
			if w == back {
				out, in = in, out
			}
			if replica == me {
				x.Stream.Copy(in, out)
				continue
			}
			if err := x.swap(replica, in, out, x.event); err != nil {
				return err
			}
		}
	}
	return x.wait()
}

// swap begins to receive from another replica, and to send to it, once after has happened;
// nothing of no bytes.
func (x *Exec) swap(replica int, in, out tensor.Mem, after device.Event) error {
	for _, m := range []struct {
		begin func(rank, tag int, m tensor.Mem, after device.Event) (comm.Request, error)
		mem   tensor.Mem
	}{{x.Replicas.Recv, in}, {x.Replicas.Send, out}} {
		if m.mem.Bytes == 0 {
			continue
		}
		req, err := m.begin(replica, comm.TagExperts, m.mem, after)
		if err != nil {
			return err
		}
		x.requests = append(x.requests, req)
	}
	return nil
}

// wait waits for what swap began, and tells whoever times passes. It drives the messages of
// other groups: those that another replica waits for may be among them.
func (x *Exec) wait() error {
	if x.Exchanging != nil {
		x.Exchanging(true)
		defer x.Exchanging(false)
	}
	return comm.WaitAll(x.requests, x.Groups...)
}
