package migrate

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/fault"
	"dynmo/src/model"
)

// Rest is what of a migration is still under way, and the layers that have left this
// stage, whose memory it reads. Nobody writes these any more.
type Rest struct {
	Moved Moved

	group    *comm.Group
	x        *model.Exec
	requests []comm.Request
	earlier  []func() error // sends to earlier stages that have not begun
	later    []func() error // likewise to later ones
	left     []*model.Layer
	reached  func(fault.Phase) // unless nil
}

// Start begins to send to earlier stages. It is called before a step: the first gradients
// follow after a while.
func (r *Rest) Start() error { return begin(&r.earlier) }

// Forwarded begins to send to later stages. It is called where a step has begun its last
// message of activations: before, what goes there would delay them.
func (r *Rest) Forwarded() error { return begin(&r.later) }

// begin begins sends, once.
func begin(sends *[]func() error) error {
	for _, send := range *sends {
		if err := send(); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	*sends = nil
	return nil
}

// Settle waits until the migration is over, and frees the layers that have left. A second
// call does nothing.
func (r *Rest) Settle() error {
	if len(r.left)+len(r.requests) > 0 {
		r.tell(fault.Settle)
	}
	for _, sends := range []*[]func() error{&r.earlier, &r.later} {
		if err := begin(sends); err != nil {
			return err
		}
	}
	for _, req := range r.requests {
		if err := req.Wait(); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	if len(r.requests) > 0 {
		if err := r.sync(); err != nil {
			return err
		}
	}
	for _, l := range r.left {
		l.Free()
	}
	r.requests, r.left = nil, nil
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
