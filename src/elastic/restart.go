package elastic

import "dynmo/src/layout"

// Next is on what a run is to go on that has ended for it.
type Next struct {
	Stages int      `json:"stages"`
	Nodes  []string `json:"nodes"` // of the job

	Before []string `json:"-"` // nodes until then
	Idle   []int    `json:"-"` // ranks that are not needed any more
}

// Restarts returns on what the run is to go on if a layout of fewer stages means its end; nil
// if it does not.
func (t Terms) Restarts(present, next layout.Layout) *Next {
	if t.Mode != Restart || next.Stages() >= present.Stages() {
		return nil
	}
	return &Next{next.Stages(), t.Kept(next.WorldRanks()), t.Kept(present.WorldRanks()), Lost(present, next)}
}

// Lost returns the ranks of the launched world that the present layout has and the next has
// not.
func Lost(present, next layout.Layout) (list []int) {
	for _, rank := range present.WorldRanks() {
		if _, stays := next.Place(rank); !stays {
			list = append(list, rank)
		}
	}
	return list
}
