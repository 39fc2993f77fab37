package comm

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Staged returns a value for Options.DeviceTransport, for ranks that share a device and for machines
// without NCCL. Its transports copy device memory through host memory. They send the host memory
// over a split of the group's Transport. So messages of host memory with the same tags stay apart.
// In a group of any Kind every rank can Send to every other rank.
//
// compute is the stream on which the caller enqueues all work that reads or writes messages. Copies
// are on streams of the transport. When a receive is done, compute waits for its copy by itself.
// Before a send the caller's event `after` orders the copy.
func Staged(d device.Device, compute device.Stream) func(Transport) (DeviceTransport, error) {
	return func(t Transport) (DeviceTransport, error) { return newStaged(t, d, compute) }
}

func newStaged(t Transport, d device.Device, compute device.Stream) (*staged, error) {
	part, err := t.Split(0, t.Rank())
	if err != nil {
		return nil, fmt.Errorf("split for device memory: %w", err)
	}
	return &staged{t: part, d: d, compute: compute, out: d.NewStream(), in: d.NewStream()}, nil
}

var (
	errAborted  = errors.New("the transport of device memory was aborted")
	errUnderWay = errors.New("closed with a message of device memory under way")
)

type staged struct {
	t       Transport
	d       device.Device
	compute device.Stream
	out, in device.Stream    // copies to and from the host: neither waits for the other
	blocks  []tensor.Mem     // all host memory, to be freed
	free    []tensor.Mem     // host memory that is not in use
	landing []landing        // receives whose copy to the device may be under way, oldest first
	copying []*stagedMessage // sends on their way to the host, oldest first
	err     error            // of every call from now on
}

// landing is a block of host memory that a copy to the device reads until the event `read`.
type landing struct {
	block tensor.Mem
	read  device.Event
}

// stagedMessage is a Handle: a piece of a message of device memory.
type stagedMessage struct {
	c        *staged
	send     bool
	peer     int
	tag      int
	mem      tensor.Mem   // on the device
	upTo     bool         // receive: the message may be shorter than mem
	block    tensor.Mem   // on the host, at least as long
	copied   device.Event // send: mem is in block
	transfer Handle       // nil: not begun
}

// begin returns host memory for a message, and makes the stream of copies wait for after.
func (c *staged) begin(copies device.Stream, bytes int64, after device.Event) (tensor.Mem, error) {
	if c.err != nil {
		return tensor.Mem{}, c.err
	}
	block, err := c.take(bytes)
	if err == nil && after != nil {
		copies.After(after)
	}
	return block, err
}

func (c *staged) Send(to, tag int, m tensor.Mem, after device.Event) (Handle, error) {
	block, err := c.begin(c.out, m.Bytes, after)
	if err != nil {
		return nil, err
	}
	c.out.Copy(block.Span(0, m.Bytes), m)
	message := &stagedMessage{c: c, send: true, peer: to, tag: tag, mem: m, block: block, copied: c.out.Record(nil)}
	c.copying = append(c.copying, message)
	return message, nil
}

// forward begins to send the blocks that have been copied to the host. A rank calls forward in every
// wait, since the peer may need this message before it can send.
func (c *staged) forward() error {
	for len(c.copying) > 0 {
		m := c.copying[0]
		copied, err := m.copied.Done()
		if err != nil || !copied {
			return err
		}
		if m.transfer, err = c.t.Isend(m.peer, m.tag, m.block.Span(0, m.mem.Bytes), 0); err != nil {
			return err
		}
		c.copying = c.copying[1:]
	}
	return nil
}

func (c *staged) Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Handle, error) {
	block, err := c.begin(c.in, m.Bytes, after)
	if err != nil {
		return nil, err
	}
	h, err := c.t.Irecv(from, tag, block.Span(0, m.Bytes))
	if err != nil {
		return nil, c.fail(err)
	}
	return &stagedMessage{c: c, peer: from, tag: tag, mem: m, upTo: upTo, block: block, transfer: h}, nil
}

// Test drives the message. An error ends the transport.
func (m *stagedMessage) Test(spin time.Duration) (bool, Arrival, error) {
	if m.c.err != nil {
		return true, Arrival{}, m.c.err
	}
	done, err := m.drive(spin)
	if err != nil {
		return true, Arrival{}, m.c.fail(err)
	}
	return done, Arrival{Bytes: m.mem.Bytes}, nil
}

// drive advances the message without waiting. A send is copied to the host, then sent. A receive is
// received into host memory. Then its copy to the device is enqueued, and the compute stream waits
// for this copy.
func (m *stagedMessage) drive(spin time.Duration) (bool, error) {
	c := m.c
	if err := c.forward(); err != nil || m.transfer == nil {
		return false, err
	}
	if len(c.copying) > 0 {
		spin = 0 // another send is to begin soon
	}
	done, got, err := m.transfer.Test(spin)
	if err != nil || !done {
		return false, err
	}
	if m.send {
		c.free = append(c.free, m.block)
		return true, nil
	}
	if got.Bytes != m.mem.Bytes && !m.upTo {
		return false, fmt.Errorf("the message has %d bytes, but %d are expected", got.Bytes, m.mem.Bytes)
	}
	m.mem = m.mem.Span(0, got.Bytes)
	c.in.Copy(m.mem, m.block.Span(0, m.mem.Bytes))
	landed := c.in.Record(nil)
	c.compute.After(landed)
	c.landing = append(c.landing, landing{m.block, landed})
	return true, nil
}

// take returns host memory of at least the given bytes, the smallest free block if there is one.
func (c *staged) take(bytes int64) (tensor.Mem, error) {
	if err := c.land(); err != nil {
		return tensor.Mem{}, err
	}
	if m := device.TakeSmallest(&c.free, bytes); !m.IsZero() {
		return m, nil
	}
	m, err := c.d.AllocHost(max(bytes, 1))
	if err != nil {
		return tensor.Mem{}, fmt.Errorf("staging memory: %w", err)
	}
	c.blocks = append(c.blocks, m)
	return m, nil
}

// land frees the blocks that have been copied to the device.
func (c *staged) land() error {
	for len(c.landing) > 0 {
		done, err := c.landing[0].read.Done()
		if err != nil {
			return err
		}
		if !done {
			return nil
		}
		c.free = append(c.free, c.landing[0].block)
		c.landing = c.landing[1:]
	}
	return nil
}

// fail ends the transport with an error, which it returns.
func (c *staged) fail(err error) error {
	c.err = err
	c.Abort()
	return err
}

// Drive begins to send the blocks that have been copied to the host.
func (c *staged) Drive() error {
	if c.err != nil {
		return c.err
	}
	if err := c.forward(); err != nil {
		return c.fail(err)
	}
	return nil
}

// Close waits for the copies and frees the host memory. A message that is not done is an error.
func (c *staged) Close() error {
	if c.err != nil {
		return c.err
	}
	if len(c.free)+len(c.landing) < len(c.blocks) {
		return c.fail(errUnderWay)
	}
	err := errors.Join(c.in.Sync(), c.out.Sync())
	c.in.Close()
	c.out.Close()
	for _, m := range c.blocks {
		c.d.FreeHost(m)
	}
	c.blocks, c.free, c.landing = nil, nil, nil
	return errors.Join(err, c.t.Close())
}

// Abort closes the streams. Messages under way keep their memory, since the transport may still write
// to it.
func (c *staged) Abort() {
	if c.err == nil {
		c.err = errAborted
	}
	c.in.Close()
	c.out.Close()
}

// stagedTag is the tag of the messages of rounds. No caller of a Group uses it.
const stagedTag = TagDevice

// stagedRound is a round of a staged transport, the messages that are not done.
type stagedRound []Handle

// Exchange begins the messages of a round.
func (c *staged) Exchange(sends, recvs []Part, after device.Event) (RoundHandle, error) {
	r := new(stagedRound)
	for _, p := range recvs {
		if p.Mem.Bytes == 0 {
			continue
		}
		h, err := c.Recv(p.Rank, stagedTag, p.Mem, false, after)
		if err != nil {
			return nil, err
		}
		*r = append(*r, h)
	}
	for _, p := range sends {
		if p.Mem.Bytes == 0 {
			continue
		}
		h, err := c.Send(p.Rank, stagedTag, p.Mem, after)
		if err != nil {
			return nil, err
		}
		*r = append(*r, h)
	}
	return r, nil
}

// Test drives the messages, one after the other.
func (r *stagedRound) Test(spin time.Duration) (bool, Arrival, error) {
	for len(*r) > 0 {
		done, _, err := (*r)[0].Test(spin)
		if err != nil || !done {
			return err != nil, Arrival{}, err
		}
		*r = (*r)[1:]
	}
	return true, Arrival{}, nil
}

// Arrived does what Test does: received messages are on their way from the host to the device.
func (r *stagedRound) Arrived() (bool, error) {
	done, _, err := r.Test(0)
	return done, err
}

// Split returns a new transport for the new group, whatever its kind.
func (c *staged) Split(t Transport, _ int, _ Kind) (DeviceTransport, error) {
	if t == nil {
		return nil, c.err
	}
	return newStaged(t, c.d, c.compute)
}

// Ready reports that the transport needs nothing more.
func (c *staged) Ready() (bool, error) { return true, c.err }
