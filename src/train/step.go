package train

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/dynamic"
	"dynmo/src/kernel"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"

	"dynmo/src/comm"
)

// change lets the dynamism change the model before the step.
func (r *Rank) change(t *turn) (err error) {
	r.expectChange()
	start := r.now()
	t.change, err = r.dynamism.Before(t.step, dynamic.Target{
		Stages: r.world.Stages, Exec: r.x, Stage: r.stage, LR: r.Config.LearningRate(t.step), Updated: r.settle,
	})
	if err == nil && t.change.Structure {
		end := r.recycle()
		r.Device.Recycle(true) // a round of its own: buffers that the model needs no more are not kept
		err = r.place(r.layout)
		end()
	}
	if err != nil {
		return fmt.Errorf("dynamic: %w", err)
	}
	if !t.change.Structure {
		r.expectSteps(1)
	}
	return r.journal.Changed(t.step, record.Change{Kind: t.change.Kind, Detail: t.change.Detail, Text: t.change.String(), Seconds: r.now() - start})
}

// compute runs forward and backward of all microbatches.
func (r *Rank) compute(t *turn) (err error) {
	t.start = r.now()
	if r.slowdown != nil {
		r.slowdown.Factor = r.Fault.FactorIn(t.step)
	}
	if r.Fault.Hits(t.step, r.World.Rank()) {
		r.Fault.Strike(r.World.Abort, r.Exit)
	}
	r.x.Step = t.step
	first := r.world.Replicas.Rank() * r.layout.Schedule.Microbatches
	t.done, err = r.runner.Step(func(m int) (tokens, targets []int32) { return r.batches.Read(r.Config.Run.Seed, t.step, first+m) })
	return err
}

// update agrees on loss and norm and applies the optimizer, unless they are not finite. Its time is
// added to the step's spans. A loss or norm that is not finite ends the run once the step is
// recorded. Settings can skip such steps instead, up to a number of them in a row. Collective.
func (r *Rank) update(t *turn) (err error) {
	span := trace.Span{Op: trace.Optimizer, Layer: -1, Microbatch: -1, Start: r.now()}
	if t.agreed, err = r.runner.Agree(t.done.Losses, r.ask()); err != nil {
		return err
	}
	if t.agreed.Ask == pipeline.Fail {
		return r.agreeOn(r.batches)
	}
	if err := r.settle(); err != nil {
		return err
	}
	if t.skipped = !t.agreed.Finite(); t.skipped {
		r.skipped++
		t.diverged = r.divergence(t.agreed)
	} else {
		r.skipped = 0
		if err := r.runner.Update(adamW(r.Config, t.step, t.agreed.Norm)); err != nil {
			return err
		}
	}
	span.End = r.now()
	t.done.Spans, t.done.Instructions = append(t.done.Spans, span), append(t.done.Instructions, span)
	return nil
}

// agreeOn returns on every rank the error of data that were changed while the run reads them. b is nil
// on a rank that reads none. Collective.
func (r *Rank) agreeOn(b *data.Batches) error {
	var err error
	if b != nil {
		err = b.Err()
	}
	return comm.Agree(r.world.All, err, false)
}

// divergence returns the error that ends the run for a loss or norm that is not finite; nil if
// the settings skip the step.
func (r *Rank) divergence(a pipeline.Agreement) error {
	why, skip := `train.on_nan = "stop"`, "; --resume --set train.on_nan=skip goes on without the updates of such steps"
	if r.Config.Train.OnNaN != "stop" {
		limit := r.Config.Train.NaNLimit
		if r.skipped < limit {
			return nil
		}
		why, skip = fmt.Sprintf("train.nan_limit = %d steps in a row were skipped", limit), ""
	}
	what := fmt.Sprintf("the loss is %v", a.Loss)
	if (pipeline.Agreement{Loss: a.Loss}).Finite() {
		what = fmt.Sprintf("the gradient norm is %v, though %s", a.Norm, what)
	}
	return comm.Shared(DivergedError{fmt.Errorf("%s (%s): begin a new run with a lower optimizer.lr, "+
		"from an earlier checkpoint if there is one (dynmo ckpt export --step, dynmo ckpt import, model.weights)%s", what, why, skip)})
}

// DivergedError is the error of a loss or norm that is not finite. From the same checkpoint the run
// would end the same way.
type DivergedError struct{ error }

// adamW returns the settings of a step's update: the learning rate of the step, and the
// gradient scaled down to the largest norm allowed.
func adamW(c config.Config, step int, norm float64) kernel.AdamW {
	o := c.Optimizer
	scale := 1.0
	if o.Clip > 0 && norm > o.Clip {
		scale = o.Clip / norm
	}
	return kernel.AdamW{
		LR: c.LearningRate(step), Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
		Decay: o.Decay, GradScale: scale,
	}
}

// validationMicrobatches returns the number of microbatches whose mean is the validation loss; 0
// without validation data.
func (r *Rank) validationMicrobatches() int {
	if r.Config.Data.Validation == "" {
		return 0
	}
	return (r.Config.Train.ValidateSequences + r.x.B - 1) / r.x.B
}

// validate measures the validation loss after the last step and at the settings' interval, with the
// same bits on every rank. It skips the measurement if the run ends with a loss that is not finite.
// It also skips it if the run was asked to stop, for which there may be little time. Validation
// uses the weights of the last update and changes nothing. Collective.
func (r *Rank) validate(t *turn) error {
	n, every, last := r.validationMicrobatches(), r.Config.Train.ValidateEvery, t.step+1 == r.Config.Train.Steps
	due := last || every > 0 && (t.step+1)%every == 0 && t.agreed.Ask != pipeline.Stop
	if n == 0 || !due || t.diverged != nil {
		return nil
	}
	// The forward passes of two microbatches take no longer than a step's work on one microbatch.
	p := r.Config.Parallel
	r.expectSteps(max(1, float64(n*r.x.B)/float64(p.Microbatches*p.MicrobatchSize*p.Replicas)))
	began, start := comm.Ran(), r.now()
	loss, atLast, err := r.runner.Validate(func(m int) ([]int32, []int32) { return r.held.Even(m, n) })
	if err == nil {
		err = r.agreeOn(r.held)
	}
	if err != nil {
		return err
	}
	r.expectSteps(1)
	t.validation = &record.Validation{Loss: loss, Last: atLast, Seconds: r.now() - start}
	t.began += comm.Ran() - began
	return nil
}

// measure gathers the costs and the memory of the step on the root.
func (r *Rank) measure(t *turn) (err error) {
	t.measuring = r.now()
	own := profile.Own{Balancing: r.spent}
	own.Allocated, own.Kept = r.Device.Used(), r.Device.Kept()
	if r.Joules != nil {
		own.Joules = r.Joules()
	}
	if r.Before > 0 {
		own.Resident = profile.Anonymous() - r.Before
	}
	if t.measured, err = r.profiler.Measure(r.x, r.stage, r.layout, t.done, own, t.change); err != nil {
		return err
	}
	if r.journal != nil {
		for _, s := range r.late.Note(t.measured) {
			peer := r.world.All.Peer(r.layout.Mesh.Rank(s.Stage, s.Replica))
			t.stragglers = append(t.stragglers, record.Straggler{Rank: peer.World, Host: peer.Host, Score: s.Score, Over: s.Over})
		}
	}
	return nil
}
