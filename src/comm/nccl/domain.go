//go:build cgo

package nccl

import (
	"time"
	"unsafe"

	"dynmo/src/comm"
	"dynmo/src/device"
)

// domain is a communicator with resources of its own, the thread that owns it, and the stream
// of its kernels. It issues one group of operations after the other.
type domain struct {
	owner   *owner // none before it is opened
	device  device.Device
	ranks   int
	stream  device.Stream // none in a domain of one rank, which has no communicator either
	current job           // with the owner, or done by it and not settled yet; else nil
	batch   batch         // of a chain: what is issued in one go
}

// job is what a communicator does in one go.
type job interface {
	// issue gives the job to NCCL. The thread of the domain's owner calls it.
	issue(d *domain, k *communicator) (part communicator, err error)
	// settle is called on the rank's thread once NCCL has done its part on the host.
	settle(d *domain)
}

// idle reports whether the domain is open and can issue a job.
func (d *domain) idle() (bool, error) {
	if d.owner == nil {
		return false, nil
	}
	idle, err := d.owner.idle()
	if err != nil || !idle {
		return false, err
	}
	if j := d.current; j != nil {
		d.current = nil
		j.settle(d)
	}
	return true, nil
}

// open reports whether there is all that the domain needs.
func (d *domain) open() (bool, error) {
	if d.ranks == 1 {
		return true, nil
	}
	return d.idle()
}

// begin begins the domain's communicator.
func (d *domain) begin(id identity, rank, ranks, ctas int) {
	d.owner = newOwner(d.device, communicator{})
	d.owner.begin(func(k *communicator) (part communicator, err error) {
		*k, err = begin(id, rank, ranks, ctas)
		return part, err
	})
}

// do hands a job to the owner. The domain is idle.
func (d *domain) do(j job) {
	d.current = j
	d.owner.begin(func(k *communicator) (communicator, error) { return j.issue(d, k) })
}

// operations are what NCCL gets as one group.
type operations interface {
	// enqueue gives NCCL the operations one by one.
	enqueue(d *domain, k *communicator) error
}

// group gives NCCL operations as one group, which ends whatever of it has failed.
func (d *domain) group(o operations, k *communicator) error {
	if err := groupBegin(); err != nil {
		return err
	}
	err := o.enqueue(d, k)
	if end := k.groupEnd(); err == nil {
		err = end
	}
	return err
}

// handle returns the driver's handle of the stream.
func (d *domain) handle() unsafe.Pointer { return d.stream.(handled).Handle() }

// handled is a stream of a GPU, which has a handle of the driver.
type handled interface{ Handle() unsafe.Pointer }

// await waits until the domain is idle.
func (d *domain) await(deadline *comm.Deadline) error {
	for {
		idle, err := d.idle()
		if err != nil || idle {
			return err
		}
		if deadline.Passed() {
			return comm.ErrNoAnswer
		}
		time.Sleep(poll)
	}
}

// close ends the communicator. Nothing is under way. Collective over its ranks.
func (d *domain) close(deadline *comm.Deadline) error {
	if d.ranks == 1 {
		return nil
	}
	for _, step := range []func(*communicator) error{(*communicator).finish, (*communicator).destroy} {
		if err := d.await(deadline); err != nil {
			return err
		}
		d.owner.begin(func(k *communicator) (communicator, error) { return communicator{}, step(k) })
	}
	if err := d.await(deadline); err != nil {
		return err
	}
	d.owner = nil
	d.stream.Close()
	return nil
}

const (
	// closeFor is how long the end of a transport waits for the other ranks, which end
	// theirs at the same time. Ranks of a crowded host come seconds late.
	closeFor = 20 * time.Second
	// closePerRank is how much longer it waits for each rank of each communicator: NCCL
	// gives back a connection in a few milliseconds.
	closePerRank = 10 * time.Millisecond
	// abortFor is how long an abort waits for NCCL: its kernels leave the GPU in
	// milliseconds, and the process may have to end at once.
	abortFor = 3 * time.Second
)

// closeBy returns until when domains have to be closed: in closeFor and closePerRank for
// each of the ranks of all their communicators.
func closeBy(domains []*domain) *comm.Deadline {
	ranks := 0
	for _, d := range domains {
		if d.ranks > 1 {
			ranks += d.ranks
		}
	}
	return comm.NewDeadline(closeFor + time.Duration(ranks)*closePerRank)
}

// abort aborts domains, all at once, since the end of one may need another's. The streams
// stay open: they may wait for what never happens.
func abort(domains []*domain) {
	late := time.After(abortFor)
	for _, d := range domains {
		if d.owner != nil {
			d.owner.abort()
		}
	}
	for _, d := range domains {
		if d.owner == nil {
			continue
		}
		select {
		case <-d.owner.ended:
			d.owner = nil
		case <-late:
			return
		}
	}
}
