package report

import (
	"fmt"

	"dynmo/src/record"
)

// state says that the run did not come to its end, "" if it did. A run of before
// there was a summary has ended if all its steps are there.
func (r Run) state() string {
	done, wanted := r.last()+1, r.Config.Train.Steps
	steps := fmt.Sprintf("%d of %d steps", done, wanted)
	if r.End == nil && done >= wanted {
		return ""
	}
	if r.End == nil {
		return "This run is unfinished: " + steps + " are recorded. It still trains, or was killed."
	}
	switch r.End.Status {
	case record.Stopped:
		return "This run was stopped after " + steps + "."
	case record.Failed:
		return "This run failed after " + steps + ": " + r.End.Error
	}
	return ""
}

// last returns the number of the last step.
func (r Run) last() int { return r.Metrics[len(r.Metrics)-1].Step }
