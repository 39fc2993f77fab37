package record

import (
	"fmt"
	"strings"
)

// refusedKey is the detail of a release that tells why Slurm took no nodes back.
const refusedKey = "refused"

// Warn tells people what goes another way than the settings want.
func (j *Journal) Warn(text string) {
	if j != nil {
		j.observe.Say("warning: " + oneLine(text))
	}
}

// Released tells what became of the ranks that lost their last layers when so many steps
// were done, in so many seconds.
func (j *Journal) Released(steps int, seconds float64, r Released) error {
	if j == nil {
		return nil
	}
	r.Refused = oneLine(r.Refused)
	for _, line := range r.lines(steps, seconds) {
		j.observe.Say(line)
	}
	detail, err := Detail(r)
	if err != nil {
		return err
	}
	return j.event(Event{Step: steps, Kind: Release, Seconds: Float(seconds), Detail: detail})
}

// lines tell a release to people.
func (r Released) lines(steps int, seconds float64) (list []string) {
	line := fmt.Sprintf("packed after %s: %v, in %s", count(steps, "step"), r, Duration(seconds))
	if r.Refused != "" {
		line = "warning: " + line
	}
	list = append(list, line)
	if len(r.Silent) > 0 {
		list = append(list, fmt.Sprintf("warning: ranks %s said no goodbye: their nodes are kept", Ranges(r.Silent)))
	}
	return list
}

// oneLine returns a text in one line.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
