package migrate

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/fault"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Rest is what of a migration is still under way, and the layers that have left this
// stage, whose memory it reads. Nobody writes these any more.
type Rest struct {
	Moved Moved

	group   *comm.Group
	x       *model.Exec
	ready   device.Event // the layers' memory may be read
	earlier parts        // of what goes to earlier stages
	later   parts        // and to later ones
	left    []*model.Layer
	reached func(fault.Phase) // unless nil
}

// parts is what this rank sends and receives at a time: a round of what lies in a device's
// memory, and one of what lies in the host's, as state that a GPU needs seldom does.
type parts struct {
	sends, recvs [2][]comm.Part // by tensor.Space
	begun        bool
	rounds       [2]comm.Round
}

// send notes a part.
func (p *parts) send(part comm.Part) {
	p.sends[part.Mem.Space] = append(p.sends[part.Mem.Space], part)
}

// receive notes a part.
func (p *parts) receive(part comm.Part) {
	p.recvs[part.Mem.Space] = append(p.recvs[part.Mem.Space], part)
}

// begin begins the rounds, once.
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

// wait waits for the rounds, which are begun.
func (p *parts) wait() error {
	for _, round := range p.rounds {
		if err := round.Wait(); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

// sending reports whether this rank sends any.
func (p *parts) sending() bool { return len(p.sends[tensor.Host])+len(p.sends[tensor.Device]) > 0 }

func (p *parts) empty() bool {
	return !p.sending() && len(p.recvs[tensor.Host])+len(p.recvs[tensor.Device]) == 0
}

// Start begins what goes to earlier stages, and, on a stage that sends none to later ones,
// what comes from earlier ones: all stages begin both in this order. It is called before
// a step: the first gradients follow after a while.
func (r *Rest) Start() error {
	err := r.earlier.begin(r)
	if err == nil && !r.later.sending() {
		err = r.later.begin(r)
	}
	return err
}

// Forwarded begins what goes to later stages. It is called where a step has begun its last
// message of activations: before, what goes there would delay them. No other round of the
// group or of the replicas' is begun between Start and Forwarded (see search.Planner.OptimizerCanFollow).
func (r *Rest) Forwarded() error { return r.later.begin(r) }

// Settle waits until the migration is over, and frees the layers that have left. A second
// call does nothing.
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

// tell says that the move has come to a phase.
func (r *Rest) tell(p fault.Phase) {
	if r.reached != nil {
		r.reached(p)
	}
}

// sync waits until the host and all streams see what was received.
func (r *Rest) sync() error {
	// Only work that the device is given from here on sees it already.
	if err := comm.Await(r.x.Stream.Record(nil), r.group); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := r.x.Stream.Sync(); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
