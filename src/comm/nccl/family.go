//go:build cgo

package nccl

import "dynmo/src/device"

// family is what the transports of a rank share, which come from one New.
type family struct {
	device  device.Device
	compute device.Stream
	ctas    int           // that a kernel of a communicator takes at most
	gate    device.Stream // waits for the events that messages wait for, in the order they were begun, and copies those of this rank to itself
	members int           // transports that are open
}

// newDomain returns the domain of a number of ranks, without its communicator.
func (f *family) newDomain(ranks int) domain {
	if ranks == 1 {
		return domain{ranks: 1}
	}
	return domain{device: f.device, ranks: ranks, stream: device.Urgent(f.device)}
}

// moment is when something may begin. A message is issued later than the event it waits
// for may be recorded again, so it has an event of its own.
type moment struct {
	waits bool
	event device.Event // of the gate
}

// moment returns when an event (nil: at once) will have happened; old is one that is used
// no more.
func (f *family) moment(old moment, after device.Event) moment {
	if after == nil {
		return moment{event: old.event}
	}
	f.gate.After(after)
	return moment{true, f.gate.Record(old.event)}
}

// happened reports whether it has come.
func (m moment) happened() (bool, error) {
	if !m.waits {
		return true, nil
	}
	return m.event.Done()
}

// join adds a transport, and leave ends one: the last one frees the shared communicator.
func (f *family) join() { f.members++ }

func (f *family) leave() {
	if f.members--; f.members == 0 {
		f.gate.Close()
	}
}
