package commtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Carriage is how the ranks of a world get what carries the memory of devices.
type Carriage struct {
	// Device opens a rank's device, which is closed in the end.
	Device func(t comm.Transport) (device.Device, error)
	// Carry makes a carrier. Collective.
	Carry func(t comm.Transport, d device.Device, compute device.Stream) (comm.Carrier, error)
}

// CarrierCase is one program of the conformance suite of carriers. It works on
// worlds of any size, and closes or aborts the rank's carrier.
type CarrierCase struct {
	Name string
	Run  func(r *Rank) error
}

// CarrierCases returns the suite, which Carriage.Run runs.
func CarrierCases() []CarrierCase {
	return []CarrierCase{
		{"Ring", (*Rank).ring},
		{"AllPairs", (*Rank).allPairs},
		{"TagsOutOfOrder", (*Rank).tagsOutOfOrder},
		{"FirstInFirstOut", (*Rank).firstInFirstOut},
		{"Empty", (*Rank).empty},
		{"Itself", (*Rank).itself},
		{"UpTo", (*Rank).upTo},
		{"UpToItself", (*Rank).upToItself},
		{"StreamOrder", (*Rank).streamOrder},
		{"OneWay", (*Rank).oneWay},
		{"EventAgain", (*Rank).eventAgain},
		{"SteadyRing", (*Rank).steadyRing},
		{"Group", (*Rank).group},
		{"HostBetween", (*Rank).hostBetween},
		{"CloseAndSplit", (*Rank).closeAndSplit},
		{"LengthsDisagree", (*Rank).lengthsDisagree},
		{"Abort", (*Rank).abort},
	}
}

// Rank is what a program of one rank has that tests a carrier.
type Rank struct {
	comm.Transport
	Device  device.Device
	Compute device.Stream
	Carrier comm.Carrier

	carriage Carriage
	counter  *counter // the device, as carriers get it
	held     []tensor.Mem
}

// Run runs a rank's program with a carrier between all ranks of t, which it
// aborts if the program fails. Else it frees what the rank has allocated.
func (k Carriage) Run(t comm.Transport, program func(*Rank) error) error {
	d, err := k.Device(t)
	if err != nil {
		return err
	}
	r := &Rank{Transport: t, Device: d, Compute: d.NewStream(), carriage: k, counter: &counter{Device: d}}
	if r.Carrier, err = r.carry(t); err != nil {
		return err
	}
	if err := program(r); err != nil {
		r.Carrier.Abort()
		return err
	}
	if err := r.Compute.Sync(); err != nil {
		return err
	}
	for _, m := range r.held {
		d.Free(m)
	}
	if used := d.Used(); used != 0 {
		return fmt.Errorf("%d bytes of the device were not freed", used)
	}
	return d.Close()
}

// carry makes a carrier between the ranks of t. Collective.
func (r *Rank) carry(t comm.Transport) (comm.Carrier, error) {
	return r.carriage.Carry(t, r.counter, r.Compute)
}

// within runs a program with a carrier between the ranks of t.
func (r *Rank) within(t comm.Transport, program func(*Rank) error) error {
	c, err := r.carry(t)
	if err != nil {
		return err
	}
	part := *r
	part.Transport, part.Carrier, part.held = t, c, nil
	if err = program(&part); err != nil {
		c.Abort()
	}
	r.held = append(r.held, part.held...)
	return err
}

// counter counts what is allocated of a device.
type counter struct {
	device.Device
	allocations int // of all kinds
	blocks      int // of host memory that are not freed
}

func (c *counter) Alloc(bytes int64) (tensor.Mem, error) {
	c.allocations++
	return c.Device.Alloc(bytes)
}

func (c *counter) AllocHost(bytes int64) (tensor.Mem, error) {
	c.allocations++
	c.blocks++
	return c.Device.AllocHost(bytes)
}

func (c *counter) FreeHost(m tensor.Mem) {
	c.blocks--
	c.Device.FreeHost(m)
}

// Memory returns device memory that Run frees.
func (r *Rank) Memory(bytes int64) (tensor.Mem, error) {
	m, err := r.Device.Alloc(bytes)
	r.held = append(r.held, m)
	return m, err
}

// Message is a message of device memory under way.
type Message struct {
	handle comm.Handle
	mem    tensor.Mem
	want   []byte // nil for a send
	length int64  // of what is received
}

// Send begins to send a pattern, which the compute stream has yet to write.
func (r *Rank) Send(to, tag, index int, length int64) (*Message, error) {
	m, err := r.Memory(length)
	if err != nil {
		return nil, err
	}
	r.write(m, r.Rank(), to, index)
	h, err := r.Carrier.Send(to, tag, m, r.Compute.Record(nil))
	return &Message{h, m, nil, length}, err
}

// Recv begins to receive a pattern.
func (r *Rank) Recv(from, tag, index int, length int64) (*Message, error) {
	return r.recv(from, tag, index, length, length, false)
}

// recv begins to receive a pattern into memory that may have room for more.
func (r *Rank) recv(from, tag, index int, length, room int64, upTo bool) (*Message, error) {
	m, err := r.Memory(room)
	if err != nil {
		return nil, err
	}
	want := slices.Concat(pattern(from, r.Rank(), index, length), bytes.Repeat([]byte{behind}, int(room-length)))
	r.Compute.Copy(m.Span(length, room-length), tensor.From(want[length:]))
	h, err := r.Carrier.Recv(from, tag, m, upTo, r.Compute.Record(nil))
	return &Message{h, m, want, length}, err
}

// write enqueues that m becomes a pattern.
func (r *Rank) write(m tensor.Mem, from, to, index int) {
	if m.Bytes > 0 {
		r.Compute.Copy(m, tensor.From(pattern(from, to, index, m.Bytes)))
	}
}

// errLate is the error of a message that hangs.
var errLate = errors.New("not done in 20 s")

// Wait polls handles until all are done.
func Wait(handles ...comm.Handle) error {
	for _, h := range handles {
		if _, err := wait(h); err != nil {
			return err
		}
	}
	return nil
}

// wait polls a handle until it is done.
func wait(h comm.Handle) (comm.Arrival, error) {
	for start := time.Now(); ; {
		done, got, err := h.Test(50 * time.Microsecond)
		if done || err != nil {
			return got, err
		}
		if time.Since(start) > 20*time.Second {
			return got, errLate
		}
	}
}

// Finish waits for messages, without the host waiting for their bytes, and looks
// at these with work of the compute stream.
func (r *Rank) Finish(all ...*Message) error {
	for i, m := range all {
		got, err := wait(m.handle)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m.want != nil && got.Bytes != m.length {
			return fmt.Errorf("message %d: received %d bytes, want %d", i, got.Bytes, m.length)
		}
		if err := r.compare(m.mem, m.want); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// compare is an error if m, as the compute stream finds it, holds other bytes
// than wanted. nil wants none.
func (r *Rank) compare(m tensor.Mem, want []byte) error {
	if len(want) == 0 {
		return nil
	}
	got := make([]byte, len(want))
	r.Compute.Copy(tensor.From(got), m)
	if err := r.Compute.Sync(); err != nil {
		return err
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("of %d bytes number %d is another than was sent", len(got), i)
		}
	}
	return nil
}

// Neighbours returns the ranks above and below, in a ring.
func (r *Rank) Neighbours() (above, below int) {
	return (r.Rank() + 1) % r.Size(), (r.Rank() + r.Size() - 1) % r.Size()
}

// exchange begins a message to a rank and one from another, in this order or the
// other one.
func (r *Rank) exchange(to, from, tag, index int, length int64, sendFirst bool) (all []*Message, err error) {
	for i := range 2 {
		var m *Message
		if sendFirst == (i == 0) {
			m, err = r.Send(to, tag, index, length)
		} else {
			m, err = r.Recv(from, tag, index, length)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
