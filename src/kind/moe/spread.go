package moe

import (
	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/kind/moe/place"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Experts of a block may be spread over the replicas of a stage, as a piece.Map says: at first
// evenly, one behind the other. Each replica dispatches the tokens of its own microbatch. Then
// replicas exchange rows, all to all: tokens go to their experts' replicas, and the experts'
// outputs come back. Gradients travel in the same way. Each replica does so in the same passes in
// the same order. It does so even without tokens of its own, because its experts may have those of
// others.
//
// The rows of an expert lie in the order of the tokens' replicas, and of the tokens' places there.
// So all sums have a fixed order.

// replicas returns the number of replicas over which the experts are spread.
func (e divided) replicas() int { return max(1, e.Spread) }

// here returns how many experts of a block a layer of a replica has room for.
func (e divided) here() int {
	return place.Places(e.Count, e.replicas(), e.Spare) / max(1, e.Groups)
}

// rows returns the largest number of rows for the experts of a replica, in microbatches of the
// given number of tokens.
func (e divided) rows(tokens int) int {
	if e.Spread == 0 && e.Groups == 0 {
		return tokens * e.Top
	}
	return e.replicas() * min(tokens*min(e.Top, e.here()), e.room(tokens)*e.here())
}

// rowsAtOnce returns the most rows that experts work on in one product: a block of one of them
// where they are spread, else of all.
func (e divided) rowsAtOnce(tokens int) int {
	if e.Spread == 0 {
		return tokens * e.Top
	}
	return min(e.block(), e.Spread*e.room(tokens))
}

func (e *experts) Traits() model.Traits {
	t := model.Traits{Talks: e.Spread > 0, Waits: !e.grouped(), Once: e.Spread > 0}
	if t.Talks {
		t.Rows = e.Top * e.hidden
	}
	return t
}

func (e *experts) NewWork(x *model.Exec, room model.Room) model.Work {
	d := newDispatch(x, e.divided)
	d.layer = e
	if e.keeps {
		inp, outputs := e.exchanged(x, x.N())
		d.inp, d.outputs = room.OnDevice(inp), room.OnDevice(outputs)
	}
	return d
}

// spreads panics unless the stage has the replicas that experts are spread over, each as many.
func (e divided) spreads(x *model.Exec) {
	switch {
	case e.Spread == 0:
	case x.Replicas == nil || x.Replicas.Size() != e.Spread:
		panic("model: experts are spread over other replicas than the stage has")
	}
}

// outgoing returns two buffers for rows that exchange sends: for inputs of experts on their way to the
// experts' replicas, and for outputs on their way back. Experts that are not spread send nothing, so
// the buffers are then inp and outputs themselves.
func (e *experts) outgoing(x *model.Exec, inp, outputs tensor.Mem) (toExperts, toTokens tensor.Mem) {
	if e.Spread == 0 {
		return inp, outputs
	}
	return outputs, e.rankMemory(x).outputs
}

// exchangeCounts exchanges how many rows of each replica go to each expert, and deals the rows to the
// replicas that hold the expert.
func (e *experts) exchangeCounts(x *model.Exec, d *dispatch) error {
	m, me := e.rankMemory(x), x.Replicas.Rank()
	counts := tensor.Of[int32](m.counts) // of the tokens here, by expert; then of each replica's
	of := func(i int) tensor.Mem {
		bytes := int64(e.Count) * tensor.I32.Size()
		return m.counts.Span(int64(i)*bytes, bytes)
	}
	for k := range e.Count {
		rows := d.rowsOf(k)
		counts[k] = int32(rows.hi - rows.lo)
	}
	m.sends, m.recvs = m.sends[:0], m.recvs[:0]
	for i := 1; i < e.Spread; i++ {
		replica := (me + i) % e.Spread
		m.addMessages(replica, of(1+replica), of(0))
	}
	copy(tensor.Of[int32](of(1+me)), tensor.Of[int32](of(0)))
	if err := m.exchangeMessages(x, nil); err != nil {
		return err
	}
	d.deal(&m.dealer, e.on, counts[e.Count:], me)
	return nil
}

// direction says which way exchange sends rows between replicas.
type direction bool

const (
	toExperts direction = false // from the tokens' replicas to the experts'
	toTokens  direction = true  // and back
)

// exchange copies rows between two memories. assigned has a row for each assignment of this replica's
// tokens, by place. worked has the rows that this replica's experts work on. exchange runs a round with
// one message for each expert and other replica, and waits for it.
func (e *experts) exchange(x *model.Exec, d *dispatch, w direction, assigned, worked tensor.Mem) error {
	if e.Spread == 0 {
		return nil
	}
	m := e.rankMemory(x)
	m.event = x.Stream.Record(m.event)
	m.sends, m.recvs = m.sends[:0], m.recvs[:0]
	me := x.Replicas.Rank()
	for i := range e.Spread {
		replica := (me + i) % e.Spread
		for k := range d.sent[replica] {
			out := rowRange(x, assigned, d.sent[replica][k], e.hidden)
			if replica == me {
				in := rowRange(x, worked, d.taken[me][k], e.hidden)
				if w == toTokens {
					out, in = in, out
				}
				x.Stream.Copy(in, out)
			} else if w == toExperts {
				m.sends = append(m.sends, comm.Part{Rank: replica, Mem: out})
			} else {
				m.recvs = append(m.recvs, comm.Part{Rank: replica, Mem: out})
			}
		}
		for _, rows := range d.taken[replica] {
			in := rowRange(x, worked, rows, e.hidden)
			if replica == me {
				break
			} else if w == toExperts {
				m.recvs = append(m.recvs, comm.Part{Rank: replica, Mem: in})
			} else {
				m.sends = append(m.sends, comm.Part{Rank: replica, Mem: in})
			}
		}
	}
	return m.exchangeMessages(x, m.event)
}

// addMessages adds a message from another replica and one to it to the next round.
func (m *rankMemory) addMessages(replica int, in, out tensor.Mem) {
	m.recvs = append(m.recvs, comm.Part{Rank: replica, Mem: in})
	m.sends = append(m.sends, comm.Part{Rank: replica, Mem: out})
}

// exchangeMessages runs the next round: it begins once the event after has happened, and waits for the
// messages. x.Exchanging learns of the wait, so that timing can leave it out.
func (m *rankMemory) exchangeMessages(x *model.Exec, after device.Event) error {
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
