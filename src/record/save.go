package record

import "fmt"

// Save is what a checkpoint took.
type Save struct {
	Seconds float64 // from its copy to its name
	Blocked float64 // seconds of the copy, in which no step ran
	Bytes   int64
}

// Resume says what the model was like when the run went on from a checkpoint.
func (j *Journal) Resume(sparsity float64) {
	if j != nil {
		j.sparsity = sparsity
	}
}

// Sparsity returns the share of prunable parameters that are pruned.
func (j *Journal) Sparsity() float64 { return j.sparsity }

// Saved records that a checkpoint after a number of steps was written.
func (j *Journal) Saved(steps int, s Save) error {
	if j == nil {
		return nil
	}
	return j.event(Event{
		Step: steps, Kind: Saved, Bytes: s.Bytes, Seconds: Float(s.Seconds),
		Detail: map[string]any{"blocked_seconds": s.Blocked},
	})
}

// Unsaved records that a checkpoint after a number of steps could not be written, and why.
func (j *Journal) Unsaved(steps int, why error) error {
	if j == nil {
		return nil
	}
	text := oneLine(why.Error())
	j.Warn(fmt.Sprintf("no checkpoint after step %d: %s", steps, text))
	return j.event(Event{Step: steps, Kind: Saved, Detail: map[string]any{"error": text}})
}
