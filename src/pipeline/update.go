package pipeline

import (
	"fmt"
	"math"

	"dynmo/src/comm"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Agreement is what all ranks know after a step.
type Agreement struct {
	Loss float64 // mean over the tokens of the global batch
	Norm float64 // global norm of the gradient
	Stop bool    // whether any rank was asked to end after this step
}

// Finite reports whether loss and norm are numbers that can be used.
func (a Agreement) Finite() bool {
	return !math.IsNaN(a.Loss+a.Norm) && !math.IsInf(a.Loss+a.Norm, 0)
}

// Agree computes the loss and the gradient norm of the step, the same bits on
// every rank: squared norms are added in layer order, losses in the order of
// global microbatches. stop says whether this rank was asked to end. Collective
// over the stages and the replicas.
func (r *Runner) Agree(s *model.Stage, losses []float64, stop bool) (Agreement, error) {
	for i, l := range s.Layers {
		l.SquaredNorm(r.Exec, r.norms.Span(int64(i)*8, 8))
	}
	r.Exec.Stream.Copy(r.told, r.norms)
	if err := r.sync(); err != nil {
		return Agreement{}, fmt.Errorf("pipeline: norm: stage %d: %w", r.stage(), err)
	}
	ask := 0.0
	if stop {
		ask = 1
	}
	mine := append([]float64{ask}, tensor.Of[float64](r.told)[:len(s.Layers)]...)
	stages, err := r.Group.Allgather(comm.Pack(append(mine, losses...)))
	if err != nil {
		return Agreement{}, fmt.Errorf("pipeline: agree over stages: %w", err)
	}
	own, squares := []float64{0}, make([]float64, len(r.owners))
	for stage, b := range stages {
		v := comm.Unpack[float64](b)
		own[0] = max(own[0], v[0])
		layers := r.owners.Layers(stage)
		for i, id := range layers {
			squares[id] = v[1+i]
		}
		own = append(own, v[1+len(layers):]...)
	}
	norm := 0.0
	for _, square := range squares {
		norm += square
	}
	replicas, err := r.Replicas.Allgather(comm.Pack(own))
	if err != nil {
		return Agreement{}, fmt.Errorf("pipeline: agree over replicas: %w", err)
	}
	sum := 0.0
	for _, b := range replicas {
		v := comm.Unpack[float64](b)
		stop = stop || v[0] > 0
		for _, loss := range v[1:] {
			sum += loss
		}
	}
	return Agreement{Loss: sum * r.Exec.Scale, Norm: math.Sqrt(norm), Stop: stop}, nil
}

// Update applies AdamW to every layer of the stage and gives a tied head its
// weights. Collective over the stages.
func (r *Runner) Update(s *model.Stage, a kernel.AdamW) error {
	for _, l := range s.Layers {
		l.Update(r.Exec, a)
	}
	if err := r.ShareTied(s); err != nil {
		return fmt.Errorf("pipeline: tied embedding: stage %d: %w", r.stage(), err)
	}
	if err := r.sync(); err != nil {
		return fmt.Errorf("pipeline: update: stage %d: %w", r.stage(), err)
	}
	return nil
}
