package elastic

import (
	"fmt"
	"time"
)

// finishFor bounds what the end of a run waits for ranks that leave, and for the scheduler.
const finishFor = 15 * time.Second

// Finish waits for the release under way, but not long, and returns it as it is then; nil
// if there is none. The run is over: no other begins.
func (r *Releases) Finish() (*Release, error) {
	r.Terms.Mode = Park
	for began := time.Now(); r.now != nil; time.Sleep(orderEvery) {
		late := time.Since(began) > finishFor
		if late && r.now.answer != nil {
			r.now.cancel()
			<-r.now.answer
		} else if late {
			d := r.now
			r.now = nil
			d.collect(r)
			d.end()
			return &d.Release, nil
		}
		if ended, _, err := r.Poll(0); ended != nil || err != nil {
			return ended, err
		}
	}
	return nil, nil
}

// Dismiss tells the ranks that wait that the run is over, and waits until they have said
// goodbye, but not long.
func (r *Releases) Dismiss() error {
	for rank, o := range r.outside {
		if !o.told {
			if err := r.tell(rank, OrderEnd); err != nil {
				return fmt.Errorf("release: %w", err)
			}
		}
	}
	for began := time.Now(); time.Since(began) < finishFor; time.Sleep(orderEvery) {
		var asked Asked
		waiting := false
		for rank, o := range r.outside {
			if err := o.listen(&asked); err != nil {
				return fmt.Errorf("release: rank %d: %w", rank, err)
			}
			waiting = waiting || !o.gone
		}
		if !waiting {
			break
		}
	}
	return nil
}

// Gone reports whether ranks have left before the others.
func (r *Releases) Gone() bool { return len(r.present()) < len(r.Terms.Nodes) }
