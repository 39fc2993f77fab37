package moe

import (
	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
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
func (e divided) replicas() int { return max(1, e.Spread) }

// here returns how many experts of a block a layer of a replica has.
func (e divided) here() int { return e.Count / e.replicas() / max(1, e.Groups) }

// firstOf returns the first expert that a replica has.
func (e divided) firstOf(replica int) int { return replica % e.replicas() * e.here() }

// rows returns the most rows that the experts of a replica work on, of microbatches of so
// many tokens.
func (e divided) rows(tokens int) int {
	if e.Spread == 0 && e.Groups == 0 {
		return tokens * e.Top
	}
	return e.replicas() * min(tokens*min(e.Top, e.here()), e.room(tokens)*e.here())
}

// rowsAtOnce returns the most rows that experts work on in one product: of one of them
// where they are spread, else of all.
func (e divided) rowsAtOnce(tokens int) int {
	if e.Spread == 0 {
		return tokens * e.Top
	}
	return e.Spread * e.room(tokens)
}

func (e *experts) Traits() model.Traits {
	return model.Traits{Talks: e.Spread > 0, Waits: !e.grouped(), Once: e.Spread > 0}
}

func (e *experts) NewWork(x *model.Exec, room model.Room) model.Work {
	d := newDispatch(x, e.divided)
	if e.keeps {
		inp, made := e.exchanged(x, x.N())
		d.inp, d.made = room.OnDevice(inp), room.OnDevice(made)
	}
	return d
}

// spreads panics unless the stage has the replicas that experts are spread over, each as many.
func (e divided) spreads(x *model.Exec) {
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
func (e *experts) outgoing(x *model.Exec, inp, made tensor.Mem) (there, back tensor.Mem) {
	if e.Spread == 0 {
		return inp, made
	}
	return made, e.meeting(x).made
}

// tell exchanges how many rows of each replica each expert works on.
func (e *experts) tell(x *model.Exec, d *dispatch) error {
	if e.Spread == 0 {
		return nil
	}
	m, here, me := e.meeting(x), e.here(), x.Replicas.Rank()
	counts := tensor.Of[int32](m.counts) // of the tokens here, by expert; then of each replica's, by expert that is here
	of := func(replica, first int) tensor.Mem {
		size := tensor.I32.Size()
		return m.counts.Span(int64(first+replica*here)*size, int64(here)*size)
	}
	for k := range e.Count {
		lo, hi := d.of(k)
		counts[k] = int32(hi - lo)
	}
	m.sends, m.recvs = m.sends[:0], m.recvs[:0]
	for i := 1; i < e.Spread; i++ {
		replica := (me + i) % e.Spread
		m.swap(replica, of(replica, e.Count), of(replica, 0))
	}
	copy(tensor.Of[int32](of(me, e.Count)), tensor.Of[int32](of(me, 0)))
	if err := m.swapAll(x, nil); err != nil {
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
// rows that the experts here work on, in a round with one message for each expert and other
// replica, and waits for it.
func (e *experts) exchange(x *model.Exec, d *dispatch, w way, assigned, worked tensor.Mem) error {
	if e.Spread == 0 {
		return nil
	}
	m := e.meeting(x)
	m.event = x.Stream.Record(m.event)
	m.sends, m.recvs = m.sends[:0], m.recvs[:0]
	here, me := e.here(), x.Replicas.Rank()
	for i := range e.Spread {
		replica := (me + i) % e.Spread
		for k := range here {
			lo, hi := d.of(e.firstOf(replica) + k)
			out := rowRange(x, assigned, lo, hi, e.hidden)
			first, end := d.worked[k*e.Spread+replica], d.worked[k*e.Spread+replica+1]
			in := rowRange(x, worked, int(first), int(end), e.hidden)
			if w == back {
				out, in = in, out
			}
			if replica == me {
				x.Stream.Copy(in, out)
				continue
			}
			m.swap(replica, in, out)
		}
	}
	return m.swapAll(x, m.event)
}

// swap notes what is received from another replica and what is sent to it.
func (m *meeting) swap(replica int, in, out tensor.Mem) {
	m.recvs = append(m.recvs, comm.Part{Rank: replica, Mem: in})
	m.sends = append(m.sends, comm.Part{Rank: replica, Mem: out})
}

// swapAll exchanges what swap noted, in a round that begins once after has happened, waits
// for it, and tells whoever times passes.
func (m *meeting) swapAll(x *model.Exec, after device.Event) error {
	round, err := x.Replicas.Exchange(comm.TagRows, m.sends, m.recvs, after)
	if err != nil {
		return err
	}
	if x.Exchanging != nil {
		x.Exchanging(true)
		defer x.Exchanging(false)
	}
	return round.Wait()
}
