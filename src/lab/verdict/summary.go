package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Status is how a run ended.
type Status string

// Status of a run that has ended.
const (
	Finished Status = "finished" // after the last step of the settings
	Stopped  Status = "stopped"  // after a step, because a stop was requested
	Failed   Status = "failed"   // with an error
	Diverged Status = "diverged" // with a loss or norm that is not finite
)

// Summary is a run in a few numbers.
type Summary struct {
	Status   Status       `json:"status"`
	Error    string       `json:"error,omitempty"`   // the error of a run that failed or diverged
	Steps    int          `json:"steps"`             // steps that were run
	Loss     record.Float `json:"loss"`              // of the last step
	Replayed bool         `json:"replayed,omitzero"` // loads were forced (dynamic.replay): there is no loss
	Skipped  int          `json:"skipped,omitempty"` // steps without an update: loss or gradient was not finite
	// ValidationLoss is the last measured validation loss; absent if none was measured.
	ValidationLoss record.Float `json:"validation_loss,omitzero"`
	Hash           string       `json:"hash,omitempty"` // of the final weights
	Before         Pace         `json:"before"`         // steps before layers first moved or the model changed; all steps if neither happened
	After          Pace         `json:"after"`          // the last steps with one model and one layout; the median is of their second half
	// Peak is absent if it is not known.
	Peak *Peak `json:"peak,omitempty"`
	// ShrinkFailures is how often Slurm refused to take nodes back from the running job.
	ShrinkFailures int `json:"shrink_failures_total,omitempty"`
	// Moves is absent if no layer moved. Stayed then has the reason.
	Moves  *Moves `json:"moves,omitempty"`
	Stayed string `json:"stayed,omitempty"`
	// WouldGain says what would make steps shorter where moving layers did not; absent if it did, or if
	// that is not known.
	WouldGain string `json:"would_gain,omitempty"`
	// Worth is absent if there is one stage, and for failed runs.
	Worth *Result `json:"worth,omitempty"`
	// Packing is absent if the model was never packed onto fewer ranks.
	Packing *Packing `json:"packing,omitempty"`
}

// Peak is what the operations of a rank are held against.
type Peak struct {
	Of    string  `json:"of"` // Sgemm or DataSheet
	FLOPs float64 `json:"flops"`
}

// What a Peak is of.
const (
	Sgemm     = "sgemm"      // a float32 product on rank 0, measured before the first step
	DataSheet = "data sheet" // of the GPU
)

// Pace is the measured time of steps.
type Pace struct {
	Steps   int          `json:"steps"`
	Seconds record.Float `json:"step_seconds"` // median
	Clock   string       `json:"clock"`
}

// ReadSummary reads the summary of a run directory, nil if the run has not ended.
func ReadSummary(dir string) (*Summary, error) {
	path := filepath.Join(dir, record.SummaryFile)
	text, err := files.Read(path, files.Note)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil, nil
	}
	s := new(Summary)
	if err == nil {
		if err = json.Unmarshal(text, s); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return s, err
}

// Write writes the summary into a run directory as a whole, or not at all.
func (s Summary) Write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return files.WriteText(filepath.Join(dir, record.SummaryFile), string(text)+"\n")
}

// Tally collects the data of a summary while a run goes on, in bounded memory. It is a record.Fold.
type Tally struct {
	steps         int
	loss          record.Float
	validation    record.Float // the last validation loss
	skipped       int
	clock         string
	cuts          []int
	before, after paces
	moved         bool
	changed       bool    // the model changed behind the first step
	balancing     float64 // seconds after steps
	spent         float64 // seconds of steps, and after them
	replayed      bool
	series        record.Series
	packer        Packer
	moves         Moves
	decisions     decisions
}

// MostPaces is the largest number of steps of which a Pace takes its median, the latest ones.
const MostPaces = 256

// paces is the seconds of the latest steps.
type paces struct {
	steps   int
	next    int       // place of the next step in the ring
	seconds []float64 // of the latest MostPaces steps, as a ring
}

// add adds the steps of a line of metrics.
func (p *paces) add(m record.Metrics) {
	for range min(m.Next()-m.Step, MostPaces) {
		if len(p.seconds) < MostPaces {
			p.seconds = append(p.seconds, float64(m.StepSeconds))
		} else {
			p.seconds[p.next%MostPaces] = float64(m.StepSeconds)
		}
		p.next++
	}
	p.steps += m.Next() - m.Step
}

// pace returns the number of steps and their median time.
func (p *paces) pace(clock string) Pace {
	return Pace{p.steps, record.Float(trace.Median(p.seconds)), clock}
}

// late returns the median time of the second half of the steps.
func (p paces) late() float64 {
	n := len(p.seconds)
	half := make([]float64, 0, n)
	for k := 1; 2*k <= n+1; k++ {
		half = append(half, p.seconds[(p.next-k)%MostPaces])
	}
	return trace.Median(half)
}

// Step takes a step.
func (t *Tally) Step(m record.Metrics) {
	t.packer.Step(m)
	moved := t.cuts != nil && !slices.Equal(t.cuts, m.Cuts)
	if moved {
		t.after = paces{}
	}
	t.moved, t.replayed = t.moved || moved, m.Replayed
	t.steps, t.loss, t.clock, t.cuts = m.Next(), m.Loss, m.Clock, m.Cuts
	if m.Skipped {
		t.skipped++
	}
	if m.Validated() {
		t.validation = m.ValidationLoss
	}
	if !t.moved && !t.changed {
		t.before.add(m)
	}
	t.after.add(m)
	steps := float64(m.Next() - m.Step)
	t.balancing += steps * float64(m.BalanceSeconds)
	t.spent += steps * float64(m.StepSeconds+m.BalanceSeconds)
}

// Overhead returns measuring, deciding and moving as a share of the training time.
func (t *Tally) Overhead() float64 { return t.balancing / t.spent }

// Event takes an event.
func (t *Tally) Event(e record.Event) {
	t.packer.Event(e)
	t.moves.add(e)
	t.decisions.add(e)
	if e.Kind == record.Dynamic {
		t.after, t.changed = paces{}, t.changed || t.steps > 0
	}
}

// mostTold is the number of phases at which a tally halves their list.
const mostTold = 512

// Costs takes a phase of costs.
func (t *Tally) Costs(p record.Phase) {
	if t.series = append(t.series, p); len(t.series) == mostTold {
		t.series = t.series.Halved()
	}
}

// Summary returns the summary of a run that has ended under some settings, with an error or nil. Hash
// and Worth are left to the caller: Worth may take seconds.
func (t *Tally) Summary(status Status, c config.Config, failed error) Summary {
	after := t.after.pace(t.clock)
	after.Seconds = record.Float(t.after.late())
	s := Summary{
		Status: status, Steps: t.steps, Skipped: t.skipped, Loss: t.loss, Replayed: t.replayed, ValidationLoss: t.validation,
		Before: t.before.pace(t.clock), After: after, ShrinkFailures: t.packer.earlier.failed + t.packer.start.failed, Packing: t.Packing(),
	}
	if failed != nil {
		s.Error = failed.Error()
		return s
	}
	if s.Stayed = t.Stayed(c); t.moves.Count > 0 {
		s.Moves = &t.moves
	}
	return s
}

// Packing returns the result of packing; nil if nothing was packed.
func (t *Tally) Packing() *Packing { return t.packer.Packing() }

// Unpacked returns why the last attempt to pack the model packed nothing; "" if it packed, or there was
// none.
func (t *Tally) Unpacked() string { return t.decisions.unpacked }

// LastCosts returns the costs of layers in the last phase; ok is false if none were measured.
func (t *Tally) LastCosts() (costs cost.Table, ok bool) {
	if len(t.series) == 0 {
		return costs, false
	}
	list := t.series.Costs()
	return list[len(list)-1].Mean(), true
}

// Worth returns the value of moving layers under some settings. It is nil if there is one stage, or
// no phase ran to its end.
func (t *Tally) Worth(c config.Config) *Result {
	if c.Parallel.Stages == 1 || len(t.series) == 0 {
		return nil
	}
	p, err := search.Configured(c)
	if err != nil {
		return nil
	}
	w, err := Measure(p, t.series)
	if err != nil {
		return nil
	}
	return &w
}
