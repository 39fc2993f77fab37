package train

import (
	"fmt"
	"strconv"
	"time"

	"dynmo/src/device"
	"dynmo/src/dynamic"
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
	if err := r.startClock(); err != nil {
		return out, fmt.Errorf("start: %w", err)
	}
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
	if err := r.flush(); err != nil {
		return out, err
	}
	if last, ok := r.costs.take(); ok {
		if err := r.Observe.Costs(last); err != nil {
			return out, err
		}
	}
	if err := r.tellGPU(out.Steps); err != nil {
		return out, err
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

// startClock sets the zero of all ranks' clocks. Those of one host take that of
// the host's first rank; between hosts they differ by what a barrier leaves.
// Collective.
func (r *Rank) startClock() error {
	if err := r.World.Barrier(); err != nil {
		return err
	}
	all, err := r.World.Allgather(strconv.AppendInt(nil, device.Monotonic(), 10))
	if err != nil {
		return err
	}
	for rank, b := range all {
		if r.World.Peer(rank).Host != r.World.Peer(r.World.Rank()).Host {
			continue
		}
		zero, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return err
		}
		r.Device.Clock().Zero(zero)
		break
	}
	return r.x.Stream.Sync() // events that come are told by the clock as it is now
}

// step runs one step: dynamism, pipeline, update, profile, balance, migrate.
func (r *Rank) step(step int) (loss float64, stop bool, err error) {
	began := time.Now()
	r.World.SetDeadline(startFor)
	changed, err := r.change(step)
	if err != nil {
		return 0, false, err
	}
	if !changed && r.last[0] > 0 {
		r.World.SetDeadline(max(r.deadlineFloor(), r.last[0]+r.last[1]))
	}
	clock := r.Device.Clock()
	start := clock.Now()
	done, err := r.runner.Step(func(m int) ([]int32, []int32) {
		return r.batches.Read(r.Config.Run.Seed, step, r.replicas.Rank()*r.Config.Parallel.Microbatches+m)
	})
	if err != nil {
		return 0, false, err
	}
	updating := clock.Now()
	agreed, err := r.runner.Agree(done.Losses, r.Stop())
	if err != nil {
		return 0, false, err
	}
	skip := !agreed.Finite()
	if skip && r.Config.Train.OnNaN == "stop" {
		return 0, false, SharedError{error: fmt.Errorf("loss %v, gradient norm %v: not finite (train.on_nan = \"stop\")", agreed.Loss, agreed.Norm)}
	}
	if !skip {
		if err := r.runner.Update(r.adamW(step, agreed)); err != nil {
			return 0, false, err
		}
	}
	update := trace.Span{Op: trace.Optimizer, Layer: -1, Microbatch: -1, Start: updating, End: clock.Now()}
	done.Spans, done.Instructions = append(done.Spans, update), append(done.Instructions, update)
	if err := r.after(step, done, agreed, start, skip); err != nil {
		return 0, false, err
	}
	r.last[0], r.last[1] = r.last[1], time.Since(began)
	return agreed.Loss, agreed.Stop, nil
}

// change lets the dynamism change the model before a step, and reports whether
// it did.
func (r *Rank) change(step int) (bool, error) {
	clock := r.Device.Clock()
	start := clock.Now()
	change, err := r.dynamism.Before(step, dynamic.Target{Stages: r.stages, Replicas: r.replicas, Exec: r.x, Stage: r.stage})
	if err != nil {
		return false, fmt.Errorf("dynamic: %w", err)
	}
	if change.Kind == "" {
		return false, nil
	}
	if err := r.flush(); err != nil { // the effect of the last decision cannot be measured any more
		return false, err
	}
	if change.Structure {
		if err := r.plan(); err != nil {
			return false, fmt.Errorf("dynamic: %w", err)
		}
	}
	if change.Costs {
		r.balancer.changed()
	}
	r.costs.changed(change.Kind)
	detail := make(map[string]any)
	for k, v := range change.Detail {
		detail[k] = v
	}
	detail["what"] = change.Kind
	return change.Structure, r.event(record.Event{
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

// deadlineFloor is how long a peer may always take. Beyond that it is given as
// long as the two last steps together; in the first two, and in a step that
// changes the model, startFor.
func (r *Rank) deadlineFloor() time.Duration {
	return time.Duration(r.Config.Comm.DeadlineSeconds * float64(time.Second))
}

// event tells the observer, on rank 0.
func (r *Rank) event(e record.Event) error {
	if r.World.Rank() != 0 {
		return nil
	}
	return r.Observe.Event(e)
}
