package record

import "fmt"

// Save is the cost of writing a checkpoint.
type Save struct {
	Seconds float64 // from the begin of the copy until the checkpoint has its name
	Blocked float64 // seconds of the copy, during which no step ran
	Bytes   int64
}

// Resume sets the sparsity of the model in the checkpoint from which the run resumes.
func (j *Journal) Resume(sparsity float64) {
	if j != nil {
		j.sparsity = sparsity
	}
}

// Sparsity returns the pruned share of the prunable parameters.
func (j *Journal) Sparsity() float64 { return j.sparsity }

// Saved records that a checkpoint was written after a number of steps.
func (j *Journal) Saved(steps int, s Save) error {
	if j == nil {
		return nil
	}
	j.event(Event{Step: steps, Kind: Saved, Bytes: s.Bytes, Seconds: Float(s.Seconds), Detail: map[string]any{"blocked_seconds": s.Blocked}})
	return j.err
}

// Unsaved records that the checkpoint after a number of steps could not be written, and why.
func (j *Journal) Unsaved(steps int, why error) error {
	if j == nil {
		return nil
	}
	text := oneLine(why.Error())
	j.Warn(fmt.Sprintf("no checkpoint after %d steps: %s", steps, text))
	j.event(Event{Step: steps, Kind: Saved, Detail: map[string]any{"error": text}})
	return j.err
}
