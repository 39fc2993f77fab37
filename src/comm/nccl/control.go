//go:build cgo

package nccl

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// Tags of the control messages, above those of comm's collectives.
const (
	tagIdentity    = comm.TagDevice + iota // from rank 0 of a communicator: the identity
	tagRound                               // from a rank that is ready for a round: a notice
	tagClearToSend                         // from a receiver that is ready: a notice
	tagReadyToSend                         // from the upper rank of a pair that is ready to send: a notice
	tagOrder                               // from the lower rank: notices of what both issue next, or empty ones
)

// notice describes a message, or all that one rank sends to another in a round.
type notice struct {
	tag   int
	bytes int64
	upTo  bool // from a receiver: a shorter message will do
	some  bool // false: there is no message
}

const noticeBytes = 16

// blockBytes is the length of a control message's memory: the longest message.
const blockBytes = int64(len(identity{}))

func (n notice) encode(b []byte) {
	clear(b[:noticeBytes])
	binary.LittleEndian.PutUint32(b, uint32(n.tag))
	if n.upTo {
		b[4] = 1
	}
	if n.some {
		b[5] = 1
	}
	binary.LittleEndian.PutUint64(b[8:], uint64(n.bytes))
}

func decode(b []byte) notice {
	return notice{int(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint64(b[8:])), b[4] != 0, b[5] != 0}
}

// control sends control messages over a transport of host memory, and reuses their
// memory.
type control struct {
	t       comm.Transport
	free    []tensor.Mem
	sending []controlMessage
}

// controlMessage is a control message under way.
type controlMessage struct {
	block  tensor.Mem
	handle comm.Handle
}

func (k *control) block() (tensor.Mem, error) {
	last := len(k.free) - 1
	if last < 0 {
		return k.t.Alloc(blockBytes)
	}
	m := k.free[last]
	k.free = k.free[:last]
	return m, nil
}

// send begins to send data to a rank.
func (k *control) send(to, tag int, data []byte) error {
	m, err := k.block()
	if err != nil {
		return err
	}
	copy(tensor.Of[byte](m), data)
	h, err := k.t.Isend(to, tag, m.Span(0, int64(len(data))), 0)
	if err != nil {
		return err
	}
	k.sending = append(k.sending, controlMessage{m, h})
	return nil
}

// notify begins to send notices to a rank.
func (k *control) notify(to, tag int, notices ...notice) error {
	var b [2 * noticeBytes]byte
	for i, n := range notices {
		n.encode(b[i*noticeBytes:])
	}
	return k.send(to, tag, b[:len(notices)*noticeBytes])
}

// who names a rank.
func (k *control) who(rank int) string {
	p := k.t.Peer(rank)
	return fmt.Sprintf("rank %d (host %s)", p.World, p.Host)
}

// drive frees the memory of the messages that are sent.
func (k *control) drive() error {
	var failed error
	k.sending = slices.DeleteFunc(k.sending, func(c controlMessage) bool {
		if failed != nil {
			return false
		}
		done, _, err := c.handle.Test(0)
		failed = err
		if done {
			k.free = append(k.free, c.block)
		}
		return done
	})
	return failed
}

// release gives the memory back once all messages are sent.
func (k *control) release(deadline *comm.Deadline) error {
	for len(k.sending) > 0 {
		err := k.drive()
		if err == nil && deadline.Passed() {
			err = comm.ErrNoAnswer
		}
		if err != nil {
			return fmt.Errorf("control messages: %w", err)
		}
		time.Sleep(poll)
	}
	for _, m := range k.free {
		k.t.Free(m)
	}
	k.free = nil
	return nil
}

// inbox receives control messages of one rank and tag, one at a time. A receive
// is posted only when a message is to come, so none is left when the group ends.
type inbox struct {
	k         *control
	from, tag int
	posted    controlMessage // zero: none
}

// next returns the next message, of this length, or nil if it has not arrived
// yet. It is valid until the next call.
func (b *inbox) next(length int64) ([]byte, error) {
	if b.posted.handle == nil {
		if b.posted.block.IsZero() {
			m, err := b.k.block()
			if err != nil {
				return nil, err
			}
			b.posted.block = m
		}
		h, err := b.k.t.Irecv(b.from, b.tag, b.posted.block.Span(0, length))
		if err != nil {
			return nil, err
		}
		b.posted.handle = h
	}
	done, got, err := b.posted.handle.Test(0)
	if err != nil || !done {
		return nil, err
	}
	if got.Bytes != length {
		return nil, fmt.Errorf("a control message has %d bytes, but %d are expected", got.Bytes, length)
	}
	b.posted.handle = nil
	return tensor.Of[byte](b.posted.block)[:length], nil
}

// close gives the memory back, where no receive is posted.
func (b *inbox) close() {
	if b.posted.handle == nil && !b.posted.block.IsZero() {
		b.k.free = append(b.k.free, b.posted.block)
		b.posted.block = tensor.Mem{}
	}
}
