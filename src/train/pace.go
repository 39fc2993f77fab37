package train

import (
	"slices"
	"time"
)

// startFor is how long ranks wait for each other while step times are unknown: in the first steps,
// and in a step that changes the model.
const startFor = 5 * time.Minute

// pace holds the times of the last steps, in which this process ran.
type pace struct {
	steps  int
	last   [2]time.Duration
	lately [100]time.Duration
}

// took records the time of a step.
func (p *pace) took(d time.Duration) {
	p.last[0], p.last[1] = p.last[1], d
	p.lately[p.steps%len(p.lately)] = d
	p.steps++
}

// known reports whether two steps were timed.
func (p *pace) known() bool { return p.last[0] > 0 }

// stallFor returns how long the ranks of a host may make no progress. It is comm.stall_seconds, or
// five times the longest of the last steps if that is longer. In the first two steps it is at least
// startFor, because a GPU may be busy for a whole step.
func (r *Rank) stallFor() time.Duration {
	least := time.Duration(r.Config.Comm.StallSeconds * float64(time.Second))
	if !r.pace.known() {
		return max(least, startFor)
	}
	return max(least, 5*slices.Max(r.pace.lately[:]))
}

// expectChange sets the deadline for peers to startFor, for a step that may change the model.
func (r *Rank) expectChange() {
	r.world.All.SetDeadline(startFor)
	r.world.All.SetPatience(2 * r.stallFor())
	r.world.All.Post().SetPatience(r.stallFor())
}

// expectSteps sets the deadline for peers to the time of `steps` steps, once two steps are timed. A
// step then counts as long as the last two together, or as comm.deadline_seconds if that is longer.
// Peers of this host have twice stallFor, because the watch of the host finds hangs earlier and
// knows their cause.
func (r *Rank) expectSteps(steps float64) {
	r.world.All.SetPatience(time.Duration(2 * steps * float64(r.stallFor())))
	if !r.pace.known() {
		return
	}
	least := time.Duration(r.Config.Comm.DeadlineSeconds * float64(time.Second))
	r.world.All.SetDeadline(max(least, time.Duration(steps*float64(r.pace.last[0]+r.pace.last[1]))))
}

// expectSlow sets the deadlines for peers to startFor, for work outside of steps.
func (r *Rank) expectSlow() {
	r.world.All.SetDeadline(startFor)
	r.world.All.SetPatience(startFor)
	r.world.All.Post().SetPatience(startFor)
}
