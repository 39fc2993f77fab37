package commtest

import (
	"fmt"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// DeviceWorld opens the devices of the ranks of a world, and transports of their
// memory.
type DeviceWorld struct {
	// Device opens a rank's device, which is closed in the end.
	Device func(t comm.Transport) (device.Device, error)
	// Transport makes the transport of a world, the ranks of t. Collective.
	Transport func(t comm.Transport, d device.Device, compute device.Stream) (comm.DeviceTransport, error)
}

// DeviceCase is one program of the conformance suite of comm.DeviceTransport. It
// works on worlds of any size, and closes or aborts the rank's transport.
type DeviceCase struct {
	Name string
	Run  func(r *Rank) error
}

// DeviceCases returns the suite, which DeviceWorld.Run runs.
func DeviceCases() []DeviceCase {
	return []DeviceCase{
		{"Ring", onDevice(ring(deviceLengths))},
		{"Neighbours", onDevice(pairs(deviceLengths, around))},
		{"TagsOutOfOrder", onDevice(tagsOutOfOrder)},
		{"FirstInFirstOut", onDevice(firstInFirstOut)},
		{"Empty", onDevice(empty)},
		{"Itself", onDevice(itself)},
		{"UpTo", onDevice(upTo([]int64{0, 1, 70_000, 4096, 0, 65537, 255, 8, 69_999}, 70_000))},
		{"StreamOrder", (*Rank).streamOrder},
		{"OneWay", (*Rank).oneWay},
		{"EventAgain", (*Rank).eventAgain},
		{"SteadyRing", (*Rank).steadyRing},
		{"Group", (*Rank).group},
		{"Exchange", (*Rank).exchange},
		{"Storm", (*Rank).storm},
		{"Leave", (*Rank).leave},
		{"HostBetween", (*Rank).hostBetween},
		{"HostAnswer", (*Rank).hostAnswer},
		{"CloseAndSplit", (*Rank).closeAndSplit},
		{"LengthsDisagree", (*Rank).lengthsDisagree},
		{"Abort", (*Rank).abort},
	}
}

// Rank is one rank of a program that tests a comm.DeviceTransport.
type Rank struct {
	comm.Transport
	Device          device.Device
	Compute         device.Stream
	DeviceTransport comm.DeviceTransport // of a chain of all ranks

	world   DeviceWorld
	counter *counter     // the device, as the transport gets it
	held    []tensor.Mem // to be freed by Run
}

// Run runs a rank's program with a transport of device memory between all ranks of
// t, which it aborts if the program fails. Else it frees the rank's memory.
func (w DeviceWorld) Run(t comm.Transport, program func(*Rank) error) error {
	d, err := w.Device(t)
	if err != nil {
		return err
	}
	r := &Rank{Transport: t, Device: d, Compute: d.NewStream(), world: w, counter: &counter{Device: d}}
	if r.DeviceTransport, err = r.openTransport(t); err != nil {
		return err
	}
	if err := guarded(func() error { return program(r) }); err != nil {
		r.DeviceTransport.Abort()
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

// openWorld makes the transport of a world, the ranks of t. Collective.
func (r *Rank) openWorld(t comm.Transport) (comm.DeviceTransport, error) {
	return r.world.Transport(t, r.counter, r.Compute)
}

// openTransport makes the transport of a chain of the ranks of t, which are a world.
// Collective.
func (r *Rank) openTransport(t comm.Transport) (comm.DeviceTransport, error) {
	world, err := r.openWorld(t)
	if err != nil {
		return nil, err
	}
	part, err := t.Split(0, t.Rank())
	if err != nil {
		return nil, err
	}
	c, err := world.Split(part, 0, comm.Chain)
	if err != nil {
		return nil, err
	}
	return &chain{c, world, part}, wait(func() (bool, error) {
		ready, err := c.Ready()
		if err != nil || !ready {
			return ready, err
		}
		return world.Ready()
	})
}

// chain is a transport that closes the one it is split from, and the one of the host that
// it was made on.
type chain struct {
	comm.DeviceTransport
	world comm.DeviceTransport
	part  comm.Transport
}

// Within returns the transports of a chain and of its world.
func Within(t comm.DeviceTransport) (messages, world comm.DeviceTransport) {
	c := t.(*chain)
	return c.DeviceTransport, c.world
}

func (c *chain) Close() error {
	for _, end := range []func() error{c.DeviceTransport.Close, c.world.Close, c.part.Close} {
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) Abort() {
	c.DeviceTransport.Abort()
	c.world.Abort()
}

// within runs a program with a transport between the ranks of t.
func (r *Rank) within(t comm.Transport, program func(*Rank) error) error {
	c, err := r.openTransport(t)
	if err != nil {
		return err
	}
	part := *r
	part.Transport, part.DeviceTransport, part.held = t, c, nil
	if err = guarded(func() error { return program(&part) }); err != nil {
		c.Abort()
	}
	r.held = append(r.held, part.held...)
	return err
}

// counter counts the allocations of a device.
type counter struct {
	device.Device
	allocations int // of all kinds
	blocks      int // of host memory, not freed
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

// NewUrgentStream returns one of the device, if it has such.
func (c *counter) NewUrgentStream() device.Stream { return device.Urgent(c.Device) }

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
	r      *Rank
	done   func() (received int64, err error) // polls until it is done
	mem    tensor.Mem
	want   []byte // nil for a send
	length int64
}

// Send begins to send a pattern, which the compute stream still has to write.
func (r *Rank) Send(to, tag, index int, length int64) (*Message, error) {
	m := Value(r.Memory(length))
	r.write(m, r.Rank(), to, index)
	h, err := r.DeviceTransport.Send(to, tag, m, r.Compute.Record(nil))
	return &Message{r, waitFor(h), m, nil, 0}, err
}

// Recv begins to receive a pattern.
func (r *Rank) Recv(from, tag, index int, length int64) (*Message, error) {
	return r.recvInto(from, tag, index, length, length, false)
}

func (r *Rank) recvInto(from, tag, index int, length, room int64, upTo bool) (*Message, error) {
	m := Value(r.Memory(room))
	want := r.prepare(m, from, r.Rank(), index, length)
	h, err := r.DeviceTransport.Recv(from, tag, m, upTo, r.Compute.Record(nil))
	return &Message{r, waitFor(h), m, want, length}, err
}

func (r *Rank) send(to, tag, index int, length int64) (finisher, error) {
	return r.Send(to, tag, index, length)
}

func (r *Rank) recv(from, tag, index int, length, room int64, upTo bool) (finisher, error) {
	return r.recvInto(from, tag, index, length, room, upTo)
}

// prepare enqueues the preparation of memory for a pattern, and returns its bytes
// after that is received.
func (r *Rank) prepare(m tensor.Mem, from, to, index int, length int64) []byte {
	want := wanted(from, to, index, length, m.Bytes)
	r.Compute.Copy(m.Span(length, m.Bytes-length), tensor.From(want[length:]))
	return want
}

// write enqueues that m becomes a pattern.
func (r *Rank) write(m tensor.Mem, from, to, index int) {
	if m.Bytes > 0 {
		r.Compute.Copy(m, tensor.From(pattern(from, to, index, m.Bytes)))
	}
}

// errLate is the error of a message that hangs.
var errLate = fmt.Errorf("not done in %v", hung)

// Wait polls handles until all are done.
func Wait(handles ...comm.Handle) error {
	for _, h := range handles {
		if _, err := waitFor(h)(); err != nil {
			return err
		}
	}
	return nil
}

// waitFor returns a function that polls a handle until it is done.
func waitFor(h comm.Handle) func() (received int64, err error) {
	return func() (received int64, err error) {
		err = wait(func() (bool, error) {
			done, got, err := h.Test(50 * time.Microsecond)
			received = got.Bytes
			return done, err
		})
		return received, err
	}
}

// wait polls until something is done.
func wait(done func() (bool, error)) error {
	for start := time.Now(); time.Since(start) < hung; {
		if done, err := done(); done || err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond) // a host has more ranks than cores
	}
	return errLate
}

func (m *Message) wait() error {
	received, err := m.done()
	if err == nil && m.want != nil && received != m.length {
		err = fmt.Errorf("received %d bytes, want %d", received, m.length)
	}
	return err
}

func (m *Message) compare() error { return m.r.compare(m.mem, m.want) }

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
func (r *Rank) Neighbours() (above, below int) { return neighbours(r) }
