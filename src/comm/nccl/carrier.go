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

var errAborted = errors.New("nccl: aborted")

const (
	// endFor is how long the end of a lane waits for the other rank, which ends
	// its own at the same time: as long as a rank that cannot be seen may be late.
	endFor = 5 * time.Second
	// abortFor is how long an abort waits for NCCL: its kernels leave the GPU in
	// milliseconds, and the process may have to end at once.
	abortFor = 3 * time.Second
)

// carrier is a comm.Carrier. The rank's owner alone calls it.
type carrier struct {
	t         comm.Transport
	rank      int
	device    device.Device
	compute   device.Stream
	gate      device.Stream // waits for what transfers have to wait for, in the order they were begun
	control   control
	senders   map[int]*sender   // by the other rank
	receivers map[int]*receiver // by the other rank
	loop      *loop             // nil until used
	ends      []end             // all of these, the oldest first
	err       error             // why nothing can be carried any more
}

// New returns what carries the memory of a GPU between the ranks of t. d makes
// the lanes' streams, and its context must be current; work on what was received
// is enqueued on compute, and what transfers wait for should be its events: they
// happen in the order in which transfers are begun. NCCL refuses two ranks on one
// GPU. The error says that there is no library, or that it is too old.
func New(t comm.Transport, d device.Device, compute device.Stream) (comm.Carrier, error) {
	if _, err := Version(); err != nil {
		return nil, err
	}
	return &carrier{
		t: t, rank: t.Rank(), device: d, compute: compute, gate: d.NewStream(), control: control{t: t},
		senders: make(map[int]*sender), receivers: make(map[int]*receiver),
	}, nil
}

// Send begins to send m to a rank once after has happened.
func (c *carrier) Send(to, tag int, m tensor.Mem, after device.Event) (comm.Handle, error) {
	if c.err != nil {
		return nil, c.err
	}
	if to == c.rank {
		l, err := c.itself()
		if err != nil {
			return nil, err
		}
		t, err := l.send(tag, m, after)
		return c.begun(l.lane, t, err)
	}
	s := c.senders[to]
	if s == nil {
		l := c.newLane(c.rank, to)
		s = &sender{lane: l, inbox: inbox{k: &c.control, from: to, tag: tagGrant}}
		c.senders[to] = s
		c.ends = append(c.ends, s)
		if err := s.open(); err != nil {
			return nil, c.fail(l.explain(err))
		}
	}
	t, err := s.post(tag, m, after)
	return c.begun(s.lane, t, err)
}

// Recv begins to receive exactly m.Bytes into m, or up to as many, once after has
// happened.
func (c *carrier) Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (comm.Handle, error) {
	if c.err != nil {
		return nil, c.err
	}
	if from == c.rank {
		l, err := c.itself()
		if err != nil {
			return nil, err
		}
		t, err := l.recv(tag, m, upTo, after)
		return c.begun(l.lane, t, err)
	}
	r := c.receivers[from]
	if r == nil {
		r = &receiver{lane: c.newLane(from, c.rank), inbox: inbox{k: &c.control, from: from, tag: tagGo}}
		c.receivers[from] = r
		c.ends = append(c.ends, r)
	}
	t, err := r.post(tag, m, upTo, after)
	return c.begun(r.lane, t, err)
}

// itself returns the lane of this rank to itself.
func (c *carrier) itself() (*loop, error) {
	if c.loop == nil {
		c.loop = &loop{lane: c.newLane(c.rank, c.rank)}
		c.ends = append(c.ends, c.loop)
		if err := c.loop.open(); err != nil {
			return nil, c.fail(c.loop.explain(err))
		}
	}
	return c.loop, nil
}

// begun returns a transfer that a lane has begun, unless it has not.
func (c *carrier) begun(l *lane, t *transfer, err error) (comm.Handle, error) {
	if err != nil {
		return nil, c.fail(l.explain(err))
	}
	return t, nil
}

// Drive takes every lane as far as it goes now.
func (c *carrier) Drive() error {
	if c.err != nil {
		return c.err
	}
	if err := c.control.drive(); err != nil {
		return c.fail(fmt.Errorf("nccl: control messages: %w", err))
	}
	for _, e := range c.ends {
		if err := e.drive(); err != nil {
			return c.fail(e.way().explain(err))
		}
	}
	return nil
}

// fail ends the carrier with an error, which it returns.
func (c *carrier) fail(err error) error {
	c.err = err
	c.Abort()
	return err
}

// Close ends the lanes. All messages are done. Collective.
func (c *carrier) Close() error {
	if c.err != nil {
		return c.err
	}
	for _, e := range c.ends {
		if !e.quiet() {
			return c.fail(e.way().explain(errors.New("closed with a message under way")))
		}
	}
	// The end of a lane may wait for the other rank, so all ranks end theirs in one order.
	slices.SortFunc(c.ends, func(a, b end) int {
		x, y := a.way(), b.way()
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to))
	})
	deadline := time.Now().Add(endFor)
	for _, step := range []func(*lane) error{
		func(l *lane) error { return l.comm.await(deadline) },
		func(l *lane) error { return l.comm.finish() },
		func(l *lane) error { return l.comm.await(deadline) },
		(*lane).destroy,
	} {
		for _, e := range c.ends {
			if err := step(e.way()); err != nil {
				return c.fail(e.way().explain(fmt.Errorf("close: %w", err)))
			}
		}
	}
	return c.release(deadline)
}

// destroy frees the lane, which is finished.
func (l *lane) destroy() error {
	err := l.comm.destroy()
	l.comm = communicator{}
	l.stream.Close()
	return err
}

// release gives the control messages' memory back once the last has been taken.
func (c *carrier) release(deadline time.Time) error {
	for len(c.control.sending) > 0 {
		if err := c.control.drive(); err != nil {
			return fmt.Errorf("nccl: close: control messages: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nccl: close: control messages: %w", comm.ErrNoAnswer)
		}
		time.Sleep(poll)
	}
	for _, e := range c.ends {
		e.close()
	}
	c.ends = nil
	c.gate.Close()
	c.control.release()
	return nil
}

// Abort gives up what is under way, on the GPU too. All lanes are aborted at
// once, since the end of one may need another's; their streams are left alone,
// since they may wait for what never happens.
func (c *carrier) Abort() {
	if c.err == nil {
		c.err = errAborted
	}
	ended := make(chan struct{}, len(c.ends))
	count := 0
	for _, e := range c.ends {
		k := e.way().comm
		if !k.begun() {
			continue
		}
		e.way().comm = communicator{}
		count++
		go func() {
			_ = k.abort() // there is nobody to tell, and nothing else to do
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
