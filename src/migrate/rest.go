package migrate

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Rest is the unfinished part of a migration. It also has the layers that have left this stage:
// sends still read their memory, and nothing writes it any more.
type Rest struct {
	Moved layout.Moved

	group   *comm.Group
	x       *model.Exec
	ready   device.Event // from then on the layers' memory may be read
	earlier parts        // sections sent to earlier stages
	later   parts        // sections sent to later stages
	left    []*model.Layer
	reached func(fault.Phase) // may be nil
}

// parts is the messages that this rank sends and receives together: a round of device memory and a
// round of host memory. Host memory has state that a GPU rarely needs.
type parts struct {
	sends, recvs [2][]comm.Part // by tensor.Space
	begun        bool
	rounds       [2]comm.Round
}

// send adds a part to the sends.
func (p *parts) send(part comm.Part) {
	p.sends[part.Mem.Space] = append(p.sends[part.Mem.Space], part)
}

// receive adds a part to the receives.
func (p *parts) receive(part comm.Part) {
	p.recvs[part.Mem.Space] = append(p.recvs[part.Mem.Space], part)
}

// begin starts the rounds, once.
func (p *parts) begin(r *Rest) (err error) {
	if p.begun {
		return nil
	}
	p.begun = true
	for space := range p.rounds {
		if p.rounds[space], err = r.group.Exchange(comm.TagSection, p.sends[space], p.recvs[space], r.ready); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

// wait waits for the rounds, which have begun.
func (p *parts) wait() error {
	for _, round := range p.rounds {
		if err := round.Wait(); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

// sending reports whether this rank sends any part.
func (p *parts) sending() bool { return len(p.sends[tensor.Host])+len(p.sends[tensor.Device]) > 0 }

func (p *parts) empty() bool {
	return !p.sending() && len(p.recvs[tensor.Host])+len(p.recvs[tensor.Device]) == 0
}

// Start starts the sends to earlier stages. A stage that sends nothing to later stages also starts
// its receives from earlier stages. Start is called before a step. layout.Layout.OptimizerCanFollow
// proves that this order of rounds cannot end in a deadlock.
func (r *Rest) Start() error {
	err := r.earlier.begin(r)
	if err == nil && !r.later.sending() {
		err = r.later.begin(r)
	}
	return err
}

// Forwarded starts the sends to later stages. It is called once a step has started its last message
// of activations, because earlier sends would delay these messages. No other round of the group or
// of the replicas may start between Start and Forwarded (see layout.Layout.OptimizerCanFollow).
func (r *Rest) Forwarded() error { return r.later.begin(r) }

// Settle waits until the migration is over, and frees the layers that have left. A second call does
// nothing.
func (r *Rest) Settle() error {
	travels := !r.earlier.empty() || !r.later.empty()
	if len(r.left) > 0 || travels {
		r.tell(fault.Settle)
	}
	for _, p := range []*parts{&r.earlier, &r.later} {
		if err := p.begin(r); err != nil {
			return err
		}
	}
	for _, p := range []*parts{&r.earlier, &r.later} {
		if err := p.wait(); err != nil {
			return err
		}
	}
	if travels {
		if err := r.sync(); err != nil {
			return err
		}
	}
	for _, l := range r.left {
		l.Free()
	}
	r.earlier, r.later, r.left = parts{begun: true}, parts{begun: true}, nil
	return nil
}

// tell reports a phase of the migration.
func (r *Rest) tell(p fault.Phase) {
	if r.reached != nil {
		r.reached(p)
	}
}

// sync waits until the host and all streams can see the received data.
func (r *Rest) sync() error {
	// Only work that the device gets after this point is sure to see the data.
	if err := comm.Await(r.x.Stream.Record(nil), r.group); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := r.x.Stream.Sync(); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
