package record

import (
	"fmt"
	"strings"
	"time"
)

// Release is how ranks without layers left before the end of a run, and what became of
// their nodes.
type Release struct {
	Steps       int      // that were done when they lost their last layers
	Mode        string   // as elastic.release has it
	NodesBefore []string // of the job
	Nodes       []string // of the job after that
	Ranks       []int    // of the launched world, that left
	Silent      []int    // that were told to leave and have not said goodbye
	Seconds     float64  // from the last layer's move to the end of the release
	Checkpoint  float64  // of them until the checkpoint was written
	Goodbye     float64  // of them from the order to the last goodbye
	Scheduler   float64  // of them in which Slurm was asked
	Tries       int      // how often
	Refused     error    // why Slurm did not take nodes back; nil if it did, or was not to
	Time        time.Time
}

// refusedKey is the detail of a release that tells why Slurm took no nodes back.
const refusedKey = "refused"

// Warn tells people what goes another way than the settings want.
func (j *Journal) Warn(text string) {
	if j != nil {
		j.observe.Say("warning: " + oneLine(text))
	}
}

// Released tells a release.
func (j *Journal) Released(r Release) error {
	if j == nil {
		return nil
	}
	for _, line := range r.lines() {
		j.observe.Say(line)
	}
	detail := map[string]any{
		"mode": r.Mode, "nodes_before": r.NodesBefore, "nodes": r.Nodes, "ranks": r.Ranks,
		"checkpoint_seconds": r.Checkpoint, "goodbye_seconds": r.Goodbye, "scontrol_seconds": r.Scheduler,
		"tries": r.Tries, "time": r.Time.UTC().Format(time.RFC3339Nano),
	}
	if r.Refused != nil {
		detail[refusedKey] = oneLine(r.Refused.Error())
	}
	return j.event(Event{Step: r.Steps, Kind: Released, Seconds: Float(r.Seconds), Detail: detail})
}

// lines tell a release to people.
func (r Release) lines() (list []string) {
	given := len(r.NodesBefore) - len(r.Nodes)
	line := fmt.Sprintf("packed after %s: %s left, %s later", count(r.Steps, "step"), count(len(r.Ranks), "rank"), Duration(r.Seconds))
	if given > 0 {
		line += fmt.Sprintf("; Slurm has %s back and took %s for it; the job has %s", count(given, "node"), Duration(r.Scheduler), strings.Join(r.Nodes, ","))
	}
	list = append(list, line)
	if r.Refused != nil {
		list = append(list, fmt.Sprintf("warning: Slurm took no nodes back, which stay idle (%s in %s): %s",
			count(r.Tries, "call"), Duration(r.Scheduler), oneLine(r.Refused.Error())))
	}
	if len(r.Silent) > 0 {
		list = append(list, fmt.Sprintf("warning: ranks %s said no goodbye: their nodes are kept", strings.Trim(fmt.Sprint(r.Silent), "[]")))
	}
	return list
}

// oneLine returns a text in one line.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
