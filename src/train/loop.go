package train

import (
	"fmt"
	"time"

	"dynmo/src/kernel"
	"dynmo/src/pipeline"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Outcome is how a run ended, the same on every rank.
type Outcome struct {
	Steps   int     // steps that were run
	Loss    float64 // of the last step
	Stopped bool    // asked to end before the last step
	Hash    string  // of the final weights, if train.hash is set
}

// Loop trains. Collective over all ranks.
func (r *Rank) Loop() (Outcome, error) {
	out := Outcome{}
	r.Device.Clock().Reset()
	for step := range r.Config.Train.Steps {
		loss, stop, err := r.step(step)
		if err != nil {
			return out, fmt.Errorf("step %d: %w", step, err)
		}
		out.Steps, out.Loss = step+1, loss
		if stop {
			out.Stopped = step+1 < r.Config.Train.Steps
			break
		}
	}
	if r.Config.Train.Hash {
		hash, err := r.hash()
		if err != nil {
			return out, fmt.Errorf("hash: %w", err)
		}
		out.Hash = hash
	}
	return out, nil
}

// step runs one step: dynamism, pipeline, update, profile, balance, migrate.
func (r *Rank) step(step int) (loss float64, stop bool, err error) {
	began := time.Now()
	if err := r.change(step); err != nil {
		return 0, false, err
	}
	clock := r.Device.Clock()
	start := clock.Now()
	me := r.replicas.Rank()
	r.runner.Feed = func(m int) ([]int32, []int32) {
		return r.Corpus.Batch(r.Config.Run.Seed, step, me*r.Config.Parallel.Microbatches+m, r.x.B, r.x.T)
	}
	done, err := r.runner.Step(r.stage)
	if err != nil {
		return 0, false, err
	}
	updating := clock.Now()
	agreed, err := r.runner.Agree(r.stage, done.Losses, r.Stop())
	if err != nil {
		return 0, false, err
	}
	skip := !agreed.Finite()
	if skip && r.Config.Train.OnNaN == "stop" {
		return 0, false, SharedError{error: fmt.Errorf("loss %v, gradient norm %v: not finite (train.on_nan = \"stop\")", agreed.Loss, agreed.Norm)}
	}
	if skip {
		r.skipped++
	} else if err := r.runner.Update(r.stage, r.adamW(step, agreed)); err != nil {
		return 0, false, err
	}
	done.Spans = append(done.Spans, trace.Span{Kind: trace.Optimizer, Layer: -1, Microbatch: -1, Start: updating, End: clock.Now()})
	if err := r.after(step, done, agreed, start, skip); err != nil {
		return 0, false, err
	}
	r.setDeadline(time.Since(began))
	return agreed.Loss, agreed.Stop, nil
}

// change lets the dynamism change the model before a step.
func (r *Rank) change(step int) error {
	clock := r.Device.Clock()
	start := clock.Now()
	change, err := r.dynamism.Apply(step, r.stages, r.x, r.stage)
	if err != nil {
		return fmt.Errorf("dynamic: %w", err)
	}
	if change == nil {
		return nil
	}
	if err := r.plan(); err != nil {
		return fmt.Errorf("dynamic: %w", err)
	}
	r.balancer.changed()
	detail := make(map[string]any)
	for k, v := range change.Detail {
		detail[k] = v
	}
	detail["what"] = change.Kind
	return r.event(record.Event{
		Step: step, Kind: record.Dynamic, Clock: clock.Kind(),
		Seconds: record.Float(clock.Now() - start), Detail: detail,
	})
}

// adamW returns the settings of a step's update: the learning rate of the
// step, and the gradient scaled down to the largest norm allowed.
func (r *Rank) adamW(step int, agreed pipeline.Agreement) kernel.AdamW {
	o := r.Config.Optimizer
	scale := 1.0
	if o.Clip > 0 && agreed.Norm > o.Clip {
		scale = o.Clip / agreed.Norm
	}
	return kernel.AdamW{
		LR: learningRate(o, step, r.Config.Train.Steps), Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
		Decay: o.Decay, GradScale: scale,
	}
}

// setDeadline lets peers take as long as the two last steps together, but at
// least the configured time.
func (r *Rank) setDeadline(took time.Duration) {
	r.last[0], r.last[1] = r.last[1], took
	floor := time.Duration(r.Config.Comm.DeadlineSeconds * float64(time.Second))
	r.World.SetDeadline(max(floor, r.last[0]+r.last[1]))
}

// event tells the observer, on rank 0.
func (r *Rank) event(e record.Event) error {
	if r.World.Rank() != 0 {
		return nil
	}
	return r.Observe.Event(e)
}
