package local

import (
	"fmt"
	"sync"
	"time"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// box holds the messages to one rank that it has not received yet, and the rank's receives whose
// messages were not sent yet. For one key only one of the two is not empty.
type box struct {
	mu    sync.Mutex
	open  map[key]*queues
	cause error // of the failure that shut the box
}

// key matches a send with a receive.
type key struct{ from, tag int }

// queues are the transfers of one key that wait to be matched.
type queues struct{ sends, recvs queue }

// queue is a list of transfers, oldest first.
type queue struct{ head, tail *transfer }

func (q *queue) push(t *transfer) {
	if q.head == nil {
		q.head = t
	} else {
		q.tail.next = t
	}
	q.tail = t
}

// pop returns nil if the queue is empty.
func (q *queue) pop() *transfer {
	t := q.head
	if t != nil {
		q.head, t.next = t.next, nil
	}
	return t
}

// transfer is one side of a message: a comm.Handle. It belongs to the rank that
// began it, which uses it again once it is done.
type transfer struct {
	owner   *member
	box     *box
	next    *transfer // in a queue
	mem     tensor.Mem
	got     comm.Arrival  // of a send: for its receiver
	matched bool          // under box.mu: a rank copies the message, and then signals done
	done    chan struct{} // signalled once when mem may be used again; err and got are set
	ended   bool          // the signal of done was received
	err     error
}

// newTransfer returns a transfer that is not in use.
func (r *member) newTransfer(m tensor.Mem, stamp float64) *transfer {
	var t *transfer
	if last := len(r.idle) - 1; last >= 0 {
		t, r.idle = r.idle[last], r.idle[:last]
	} else {
		t = &transfer{owner: r, done: make(chan struct{}, 1)}
	}
	t.mem, t.got = m, comm.Arrival{Stamp: stamp, Bytes: m.Bytes}
	t.matched, t.ended, t.err = false, false, nil
	return t
}

// Isend begins to send m: it copies at once if the receiver waits for it.
func (r *member) Isend(to, tag int, m tensor.Mem, stamp float64) (comm.Handle, error) {
	t := r.newTransfer(m, stamp)
	return t, r.group.boxes[to].post(true, key{r.rank, tag}, t)
}

// Irecv begins to receive m: it copies at once if the message was sent.
func (r *member) Irecv(from, tag int, m tensor.Mem) (comm.Handle, error) {
	t := r.newTransfer(m, 0)
	return t, r.group.boxes[r.rank].post(false, key{from, tag}, t)
}

// post matches t with the oldest transfer of the other direction, or queues it.
func (b *box) post(send bool, k key, t *transfer) error {
	t.box = b
	b.mu.Lock()
	if b.cause != nil {
		b.mu.Unlock()
		return b.cause
	}
	both := b.open[k]
	if both == nil {
		if b.open == nil {
			b.open = map[key]*queues{}
		}
		both = &queues{}
		b.open[k] = both
	}
	same, others := &both.sends, &both.recvs
	if !send {
		same, others = others, same
	}
	other := others.pop()
	if other == nil {
		same.push(t)
		b.mu.Unlock()
		return nil
	}
	t.matched, other.matched = true, true
	b.mu.Unlock()
	if send {
		deliver(other, t)
	} else {
		deliver(t, other)
	}
	return nil
}

// deliver copies a message from its sender's memory to its receiver's. A side whose
// done is signalled belongs to its rank again.
func deliver(to, from *transfer) {
	if from.mem.Bytes <= to.mem.Bytes {
		copy(tensor.Of[byte](to.mem), tensor.Of[byte](from.mem))
	} else {
		to.err = fmt.Errorf("the message has %d bytes", from.mem.Bytes)
	}
	to.got = from.got
	to.done <- struct{}{}
	from.done <- struct{}{}
}

// Test reports whether the transfer is done. It does not poll: see Sleep.
func (t *transfer) Test(time.Duration) (bool, comm.Arrival, error) {
	if !t.ended {
		select {
		case <-t.done:
		default:
			select {
			case <-t.owner.group.world.failed:
				return t.settle()
			default:
				return false, comm.Arrival{}, nil
			}
		}
	}
	return t.end()
}

// end gives the transfer back to its rank.
func (t *transfer) end() (bool, comm.Arrival, error) {
	t.owner.idle = append(t.owner.idle, t)
	return true, t.got, t.err
}

// settle ends a transfer of a failed world: with the world's error if it was
// dropped, else when the copy under way is done.
func (t *transfer) settle() (bool, comm.Arrival, error) {
	t.box.mu.Lock()
	matched := t.matched
	t.box.mu.Unlock()
	if !matched {
		return true, comm.Arrival{}, t.owner.group.world.cause
	}
	<-t.done
	return t.end()
}

// Sleep returns when the transfer is done, the world has failed, or after d.
func (t *transfer) Sleep(d time.Duration) {
	alarm := t.owner.alarm
	if alarm == nil {
		alarm = time.NewTimer(d)
		t.owner.alarm = alarm
	} else {
		alarm.Reset(d)
	}
	select {
	case <-t.done:
		t.ended = true
	case <-t.owner.group.world.failed:
	case <-alarm.C:
	}
	alarm.Stop()
}

// shut drops what is queued and refuses later transfers.
func (b *box) shut(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause, b.open = cause, nil
}
