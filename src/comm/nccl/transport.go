//go:build cgo

package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

var (
	errAborted  = errors.New("nccl: aborted")
	errUnderWay = errors.New("closed with a message under way")
)

const (
	// endFor is how long the end of a channel waits for the other rank, which ends
	// its own at the same time: as long as a rank that cannot be seen may be late.
	endFor = 5 * time.Second
	// abortFor is how long an abort waits for NCCL: its kernels leave the GPU in
	// milliseconds, and the process may have to end at once.
	abortFor = 3 * time.Second
)

// transport is a comm.DeviceTransport. The rank's owner alone calls it.
type transport struct {
	rank      int
	device    device.Device
	compute   device.Stream
	gate      device.Stream // waits for the events that transfers wait for, in the order they were begun
	control   control
	endpoints []endpoint // the oldest first
	byRoute   map[route]endpoint
	err       error // of every call from now on
}

// route is an ordered pair of ranks.
type route struct{ from, to int }

// New returns a transport of the memory of GPUs between the ranks of t. d makes
// the channels' streams, and its context must be current; work that uses received
// memory is enqueued on compute, and transfers should wait for its events: they
// happen in the order in which transfers are begun. NCCL refuses two ranks on one
// GPU. The error is that there is no library, or that it is too old.
func New(t comm.Transport, d device.Device, compute device.Stream) (comm.DeviceTransport, error) {
	if _, err := Version(); err != nil {
		return nil, err
	}
	return &transport{
		rank: t.Rank(), device: d, compute: compute, gate: d.NewStream(), control: control{t: t}, byRoute: make(map[route]endpoint),
	}, nil
}

// Send begins to send m to a rank once after has happened.
func (d *transport) Send(to, tag int, m tensor.Mem, after device.Event) (comm.Handle, error) {
	return d.begin(route{d.rank, to}, transfer{sends: true, tag: tag, mem: m}, after)
}

// Recv begins to receive exactly m.Bytes into m, or at most as many, once after has
// happened.
func (d *transport) Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (comm.Handle, error) {
	return d.begin(route{from, d.rank}, transfer{tag: tag, mem: m, upTo: upTo}, after)
}

func (d *transport) begin(way route, wanted transfer, after device.Event) (comm.Handle, error) {
	if d.err != nil {
		return nil, d.err
	}
	e, err := d.endpoint(way)
	if err != nil {
		return nil, err
	}
	t := e.base().newTransfer(wanted, after)
	if err := e.post(t); err != nil {
		return nil, d.fail(e.base().explain(err))
	}
	return t, nil
}

// endpoint returns this rank's endpoint of a channel, which it opens at first.
func (d *transport) endpoint(way route) (endpoint, error) {
	e := d.byRoute[way]
	if e != nil {
		return e, nil
	}
	c := &channel{d: d, route: way, stream: d.device.NewStream()}
	switch {
	case way.from == way.to:
		e = &loop{channel: c}
	case way.from == d.rank:
		e = &sender{channel: c, inbox: inbox{k: &d.control, from: way.to, tag: tagClearToSend}}
	default:
		e = &receiver{channel: c, inbox: inbox{k: &d.control, from: way.from, tag: tagReadyToSend}}
	}
	d.endpoints, d.byRoute[way] = append(d.endpoints, e), e
	if err := e.open(); err != nil {
		return nil, d.fail(c.explain(err))
	}
	return e, nil
}

// Drive takes the messages of all channels as far as they go without waiting.
func (d *transport) Drive() error {
	if d.err != nil {
		return d.err
	}
	if err := d.control.drive(); err != nil {
		return d.fail(fmt.Errorf("nccl: control messages: %w", err))
	}
	for _, e := range d.endpoints {
		if err := e.drive(); err != nil {
			return d.fail(e.base().explain(err))
		}
	}
	return nil
}

// fail ends the transport with an error, which it returns.
func (d *transport) fail(err error) error {
	d.err = err
	d.Abort()
	return err
}

// Close ends the channels. All messages are done. Collective.
func (d *transport) Close() error {
	if d.err != nil {
		return d.err
	}
	for _, e := range d.endpoints {
		if !e.quiet() {
			return d.fail(e.base().explain(errUnderWay))
		}
	}
	// The end of a channel may wait for the other rank, so all ranks end theirs in one order.
	slices.SortFunc(d.endpoints, func(a, b endpoint) int {
		x, y := a.base(), b.base()
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to))
	})
	deadline := time.Now().Add(endFor)
	for _, step := range []func(*channel) error{
		func(c *channel) error { return c.comm.await(deadline) },
		func(c *channel) error { return c.comm.finish() },
		func(c *channel) error { return c.comm.await(deadline) },
		(*channel).destroy,
	} {
		for _, e := range d.endpoints {
			if err := step(e.base()); err != nil {
				return d.fail(e.base().explain(fmt.Errorf("close: %w", err)))
			}
		}
	}
	return d.release(deadline)
}

// release gives the control messages' memory back once all are sent.
func (d *transport) release(deadline time.Time) error {
	for len(d.control.sending) > 0 {
		err := d.control.drive()
		if err == nil && time.Now().After(deadline) {
			err = comm.ErrNoAnswer
		}
		if err != nil {
			return fmt.Errorf("nccl: close: control messages: %w", err)
		}
		time.Sleep(poll)
	}
	for _, e := range d.endpoints {
		e.close()
	}
	d.endpoints = nil
	d.gate.Close()
	d.control.release()
	return nil
}

// Abort gives up all messages that are not done, on the GPU too. All channels are
// aborted at once, since the end of one may need another's. Their streams are not
// closed: they may wait for an event that never happens.
func (d *transport) Abort() {
	if d.err == nil {
		d.err = errAborted
	}
	ended := make(chan struct{}, len(d.endpoints))
	count := 0
	for _, e := range d.endpoints {
		k := e.base().comm
		if !k.begun() {
			continue
		}
		e.base().comm = communicator{}
		count++
		go func() {
			_ = k.abort() // nothing else can be done about an error
			ended <- struct{}{}
		}()
	}
	late := time.After(abortFor)
	for range count {
		select {
		case <-ended:
		case <-late:
			return
		}
	}
}
