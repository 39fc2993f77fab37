package record

import (
	"fmt"
	"strings"
)

// refusedKey is the detail of an event that tells why Slurm took no nodes back, or why a
// move could not be had.
const refusedKey = "refused"

// Warn tells people what goes another way than the settings want.
func (j *Journal) Warn(text string) {
	if j != nil {
		j.observe.Say("warning: " + oneLine(text))
	}
}

// Released tells what became of ranks without layers, and of their nodes, so many seconds
// after they had lost the last one behind a step. Silent ones of them have not said
// goodbye.
func (j *Journal) Released(step int, seconds float64, r Released, silent []int) error {
	if j == nil {
		return nil
	}
	r.Refused = oneLine(r.Refused)
	if r.Refused != "" {
		j.Warn(fmt.Sprintf("step %d: %v", step, r))
	} else {
		j.observe.Say(fmt.Sprintf("step %d: %v", step, r))
	}
	if len(silent) > 0 {
		j.Warn(fmt.Sprintf("step %d: no goodbye of ranks %s: their nodes are kept", step, Ranges(silent)))
	}
	detail, err := Detail(r)
	if err != nil {
		return err
	}
	return j.event(Event{Step: step, Kind: Release, Seconds: Float(seconds), Detail: detail})
}

// oneLine returns a text in one line.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
