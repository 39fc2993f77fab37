package local

import (
	"fmt"
	"sync"
	"time"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// box holds what was sent to one rank and not yet received, and what the rank
// waits for and was not yet sent. For one key only one of the two is not empty.
type box struct {
	mu    sync.Mutex
	sends map[key][]*transfer
	recvs map[key][]*transfer
	cause error // why the box is shut
}

// key is what messages are matched by.
type key struct{ from, tag int }

// transfer is one side of a message: a comm.Handle.
type transfer struct {
	world   *world
	box     *box
	mem     tensor.Mem
	stamp   float64
	matched bool          // under box.mu: somebody copies, done will be closed
	done    chan struct{} // closed when mem may be used again; err and stamp are set
	err     error
}

// Isend begins to send m: it copies at once if the receiver waits for it.
func (r *Rank) Isend(to, tag int, m tensor.Mem, stamp float64) (comm.Handle, error) {
	return r.group.boxes[to].post(true, key{r.rank, tag},
		&transfer{world: r.group.world, mem: m, stamp: stamp, done: make(chan struct{})})
}

// Irecv begins to receive m: it copies at once if the message was sent.
func (r *Rank) Irecv(from, tag int, m tensor.Mem) (comm.Handle, error) {
	return r.group.boxes[r.rank].post(false, key{from, tag},
		&transfer{world: r.group.world, mem: m, done: make(chan struct{})})
}

// post matches t with the oldest transfer of the other direction, or queues it.
func (b *box) post(send bool, k key, t *transfer) (comm.Handle, error) {
	t.box = b
	b.mu.Lock()
	if b.cause != nil {
		b.mu.Unlock()
		return nil, b.cause
	}
	if b.sends == nil {
		b.sends, b.recvs = map[key][]*transfer{}, map[key][]*transfer{}
	}
	mine, theirs := b.sends, b.recvs
	if !send {
		mine, theirs = theirs, mine
	}
	queue := theirs[k]
	if len(queue) == 0 {
		mine[k] = append(mine[k], t)
		b.mu.Unlock()
		return t, nil
	}
	other := queue[0]
	if theirs[k] = queue[1:]; len(queue) == 1 {
		delete(theirs, k)
	}
	t.matched, other.matched = true, true
	b.mu.Unlock()
	if send {
		deliver(other, t)
	} else {
		deliver(t, other)
	}
	return t, nil
}

// deliver copies a message from where it is sent to where it is received.
func deliver(to, from *transfer) {
	if to.mem.Bytes == from.mem.Bytes {
		copy(tensor.Of[byte](to.mem), tensor.Of[byte](from.mem))
	} else {
		to.err = fmt.Errorf("the message has %d bytes", from.mem.Bytes)
	}
	to.stamp = from.stamp
	close(to.done)
	close(from.done)
}

// Test reports whether the transfer is done.
func (t *transfer) Test() (bool, float64, error) {
	select {
	case <-t.done:
		return true, t.stamp, t.err
	default:
	}
	select {
	case <-t.world.failed:
		return t.settle()
	default:
		return false, 0, nil
	}
}

// settle ends a transfer of a failed world: with the world's error if it was
// dropped, else when the copy under way is done.
func (t *transfer) settle() (bool, float64, error) {
	t.box.mu.Lock()
	matched := t.matched
	t.box.mu.Unlock()
	if !matched {
		return true, 0, t.world.cause
	}
	<-t.done
	return true, t.stamp, t.err
}

// Sleep returns when the transfer is done, the world has failed, or after d.
func (t *transfer) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-t.world.failed:
	case <-timer.C:
	}
}

// shut drops what is queued and refuses what comes.
func (b *box) shut(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause, b.sends, b.recvs = cause, nil, nil
}
