package train

import (
	"dynmo/src/elastic"
	"dynmo/src/pipeline"
	"dynmo/src/record"
)

// validationMicrobatches returns how many microbatches the validation loss is the mean
// of, 0 without validation data.
func (r *Rank) validationMicrobatches() int {
	if r.Config.Data.Validation == "" {
		return 0
	}
	return (r.Config.Train.ValidateSequences + r.x.B - 1) / r.x.B
}

// validate returns the validation loss after a step, the same bits on every rank; nil
// where it is not measured then: after the last step and every so many others, unless the
// run ends with a loss that is not finite, or was asked to stop, for which there may be
// little time. It sees the weights as the update has left them and changes nothing but
// time. Collective.
func (r *Rank) validate(step int, w elastic.World, agreed pipeline.Agreement, diverged error) (*record.Validation, error) {
	n, every, last := r.validationMicrobatches(), r.Config.Train.ValidateEvery, step+1 == r.Config.Train.Steps
	due := last || every > 0 && (step+1)%every == 0 && agreed.Ask != pipeline.Stop
	if n == 0 || !due || diverged != nil {
		return nil, nil
	}
	// The forward pass of a microbatch takes no longer than a step takes for one.
	p := r.Config.Parallel
	steps := max(1, float64(n*r.x.B)/float64(p.Microbatches*p.MicrobatchSize*p.Replicas))
	r.deadline(w, steps)
	r.patience(w, steps)
	clock := r.Device.Clock()
	start := clock.Now()
	loss, err := r.runner.Validate(func(m int) ([]int32, []int32) { return r.held.Even(m, n) })
	if err != nil {
		return nil, err
	}
	r.deadline(w, 1)
	r.patience(w, 1)
	return &record.Validation{Loss: loss, Seconds: clock.Now() - start}, nil
}
