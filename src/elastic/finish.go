package elastic

import (
	"fmt"
	"slices"
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
// goodbye, but not long. It returns those that have not.
func (r *Releases) Dismiss() (silent []int, err error) {
	for rank, o := range r.outside {
		if !o.told {
			if err := r.tell(rank, OrderEnd); err != nil {
				return nil, fmt.Errorf("release: %w", err)
			}
		}
	}
	for began := time.Now(); ; time.Sleep(orderEvery) {
		silent = nil
		for rank, o := range r.outside {
			if err := o.listen(&Asked{}); err != nil {
				return nil, fmt.Errorf("release: rank %d: %w", rank, err)
			}
			if !o.gone {
				silent = append(silent, rank)
			}
		}
		if len(silent) == 0 || time.Since(began) > finishFor {
			slices.Sort(silent)
			return silent, nil
		}
	}
}
