package comm

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"dynmo/src/tensor"
)

// A message of bytes begins with a frame of fixed length: the number of bytes, then the first bytes.
// Bytes that do not fit into the frame follow as a second message with the same tag. Most control
// messages fit into the frame. All transports send a message of this length without a handshake.
const (
	frameBytes = 256
	frameHead  = 8 // length, little endian
	frameBody  = frameBytes - frameHead
)

// pending is a message that is being sent, and the block that it reads.
type pending struct {
	message *message
	block   tensor.Mem
}

// SendBytes sends data, of any length, to a rank, which calls RecvBytes with the same tag. It copies
// data and returns without waiting for the receiver. So two ranks may both send before they receive.
// Only memory limits how many bytes are under way.
func (g *Group) SendBytes(to, tag int, data []byte) error {
	g.check(to, tag)
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	if err := g.reap(); err != nil {
		return err
	}
	frame, err := g.staging.get(frameBytes)
	if err != nil {
		return err
	}
	view := tensor.Of[byte](frame)
	binary.LittleEndian.PutUint64(view, uint64(len(data)))
	clear(view[frameHead+copy(view[frameHead:], data):])
	arrives := g.arrival(to, tag, int64(len(data)))
	if err := g.sendBlock(to, tag, frame, frameBytes, arrives); err != nil {
		return err
	}
	if len(data) <= frameBody {
		return nil
	}
	rest := data[frameBody:]
	block, err := g.staging.get(int64(len(rest)))
	if err != nil {
		return err
	}
	copy(tensor.Of[byte](block), rest)
	return g.sendBlock(to, tag, block, int64(len(rest)), arrives)
}

// sendBlock begins to send the first bytes of a block. reap takes the block back.
func (g *Group) sendBlock(to, tag int, block tensor.Mem, length int64, arrives float64) error {
	r := g.newMessage(true, to, length)
	r.stamp = arrives
	if err := r.begin(tag, block.Span(0, length), nil); err != nil {
		return err
	}
	g.pending = append(g.pending, pending{r, block})
	return nil
}

// reap takes back the blocks of sends that are done, in the order they began.
func (g *Group) reap() error {
	ended := 0
	defer func() { g.pending = slices.Delete(g.pending, 0, ended) }()
	for _, p := range g.pending {
		done, err := p.message.test(0)
		if !done {
			return nil
		}
		ended++
		g.staging.put(p.block)
		if err != nil {
			return err
		}
		p.message.recycle()
	}
	return nil
}

// flush waits until all messages of bytes are sent.
func (g *Group) flush() error {
	for len(g.pending) > 0 {
		if err := g.pending[0].message.await(); err != nil {
			return err
		}
		if err := g.reap(); err != nil {
			return err
		}
	}
	return nil
}

// RecvBytes waits for the next message of SendBytes from a rank with this tag, and returns its bytes.
// It gives up as Request.Wait does. On a virtual clock it costs as much as one message of len(data)
// bytes, in time and on the link.
func (g *Group) RecvBytes(from, tag int) ([]byte, error) {
	g.check(from, tag)
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	if err := g.reap(); err != nil {
		return nil, err
	}
	frame, err := g.staging.get(frameBytes)
	if err != nil {
		return nil, err
	}
	arrives, err := g.recvBlock(from, tag, frame, frameBytes)
	if err != nil {
		return nil, err
	}
	view := tensor.Of[byte](frame)
	data := make([]byte, binary.LittleEndian.Uint64(view))
	copied := copy(data, view[frameHead:])
	g.staging.put(frame)
	if rest := int64(len(data) - copied); rest > 0 {
		block, err := g.staging.get(rest)
		if err != nil {
			return nil, err
		}
		if _, err := g.recvBlock(from, tag, block, rest); err != nil {
			return nil, err
		}
		copy(data[copied:], tensor.Of[byte](block))
		g.staging.put(block)
	}
	g.o.Clock.Reach(arrives)
	return data, nil
}

// recvBlock receives into the first bytes of a block and returns the message's arrival time. It does
// not move the clock. A block whose message failed is not used again: the transport may still write
// to the block.
func (g *Group) recvBlock(from, tag int, block tensor.Mem, length int64) (arrives float64, err error) {
	r := g.newMessage(false, from, length)
	if err := r.begin(tag, block.Span(0, length), nil); err != nil {
		return 0, err
	}
	if err := r.await(); err != nil {
		return 0, err
	}
	arrives = r.stamp
	r.recycle()
	return arrives, nil
}

// Pack copies numbers into the bytes of a message, bit for bit, in the byte order of this machine.
// That suffices, because all ranks run one binary.
func Pack[T tensor.Element](v []T) []byte {
	return append([]byte(nil), tensor.Of[byte](tensor.From(v))...)
}

// Unpack copies the numbers out of bytes of Pack, bit for bit. It panics if len(b) is not a multiple
// of the size of T.
func Unpack[T tensor.Element](b []byte) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if len(b)%size != 0 {
		panic("comm: Unpack of bytes that end inside a number")
	}
	v := make([]T, len(b)/size)
	copy(tensor.Of[byte](tensor.From(v)), b) // through v: b need not be aligned for T
	return v
}
