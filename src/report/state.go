package report

import "fmt"

// state says that the run did not come to its end, "" if it did. A run of before
// there was a SummaryFile has ended if all its steps are there.
func (r Run) state() string {
	done, wanted := r.last()+1, r.Config.Train.Steps
	steps := fmt.Sprintf("%d of %d steps", done, wanted)
	switch {
	case r.Status == "finished" || r.Status == "" && done >= wanted:
		return ""
	case r.Status == "stopped":
		return "This run was stopped after " + steps + "."
	case r.Status == "failed":
		return "This run failed after " + steps + "."
	}
	return "This run is unfinished: " + steps + " are recorded. It still trains, or was killed."
}

// last returns the number of the last step.
func (r Run) last() int { return r.Metrics[len(r.Metrics)-1].Step }
