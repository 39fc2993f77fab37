package pipeline

import (
	"fmt"
	"math"

	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Ask is a request to a rank, for the time after a step: by a signal, or by the time since the last
// checkpoint. If ranks have different requests, the one that comes last in the list holds for all.
type Ask uint8

const (
	Nothing Ask = iota // no request
	Save               // write a checkpoint
	Stop               // end the run
	Fail               // end the run with an error of this rank, before the update
)

// Agreement is what all ranks know after a step.
type Agreement struct {
	Loss float64 // mean over the tokens of the global batch
	Norm float64 // norm of the whole model's gradient of Loss, before clipping; the caller clips by kernel.AdamW.GradScale
	Ask  Ask     // the request that holds for all ranks
}

// Finite reports whether loss and norm are finite.
func (a Agreement) Finite() bool {
	return !math.IsNaN(a.Loss+a.Norm) && !math.IsInf(a.Loss+a.Norm, 0)
}

// Agree computes the loss and the gradient norm of the step, the same bits on every rank. losses are
// Result.Losses; ask is the request to this rank.
//
// Squared norms are added in this order. First come the layers, by chain position, each with the
// parameters that all replicas have. Then come the parameters that only one replica updates
// (model.Param.Own), by replica. Last come pieces (model.Param.Piece), by layer and piece number,
// whichever replica holds them. Losses are added by microbatch of all replicas, then by layer.
//
// Collective over the stages and the replicas.
func (r *Runner) Agree(losses []float64, ask Ask) (Agreement, error) {
	norms, err := r.squaredNorms()
	if err != nil {
		return Agreement{}, fmt.Errorf("pipeline: norm: stage %d: %w", r.stage(), err)
	}
	mine := append([]float64{float64(ask)}, norms...)
	agreed, err := r.fold(append(mine, losses...))
	if err != nil {
		return Agreement{}, fmt.Errorf("pipeline: agree: %w", err)
	}
	return Agreement{Loss: agreed[1] * r.x.Scale, Norm: math.Sqrt(agreed[2]), Ask: Ask(agreed[0])}, nil
}

// squaredNorms returns squared norms for each layer of the stage: that of the gradients that
// replicas share; that of this replica's own gradients; and that of each piece which this replica
// owns (0 for the other pieces). Where layers are sliced only the first replica knows the first of
// them; the others return zeros. It is then collective over the replicas.
func (r *Runner) squaredNorms() ([]float64, error) {
	r.x.Stream.Zero(r.norms)
	off := int64(0)
	for _, l := range r.s.Layers {
		bytes := normBytes(l, r.replicas.Rank())
		l.SquaredNorm(r.x, r.norms.Span(off, bytes))
		off += bytes
	}
	r.x.Stream.Copy(r.normsOnHost, r.norms)
	if err := r.sync(); err != nil {
		return nil, err
	}
	me, mine := r.replicas.Rank(), tensor.Of[float64](r.normsOnHost)
	blocks := [][]float64{mine} // of some replicas, from first on
	first := me
	if r.sliced() {
		all, err := r.replicas.Gather(0, comm.Pack(mine))
		if err != nil {
			return nil, err
		}
		blocks, first = nil, 0
		for _, b := range all {
			blocks = append(blocks, comm.Unpack[float64](b))
		}
	}
	width := 2 + r.pieces
	norms := make([]float64, width*len(r.s.Layers))
	for i, l := range r.s.Layers {
		of := norms[width*i:][:width]
		shared, own := l.NormBlocks(me)
		if !l.AddPieceNorms(of[2:], mine[shared:shared+own]) {
			for _, x := range mine[shared : shared+own] {
				of[1] += x
			}
		}
		mine = mine[shared+own:]
		for d := range blocks {
			shared, own := l.NormBlocks(first + d)
			for _, x := range blocks[d][:shared] {
				of[0] += x
			}
			blocks[d] = blocks[d][shared+own:]
		}
	}
	return norms, nil
}

// normBytes returns the bytes of a layer's squared norms on a replica.
func normBytes(l *model.Layer, replica int) int64 {
	shared, own := l.NormBlocks(replica)
	return int64(shared+own) * tensor.F64.Size()
}

// fold returns, from what this rank has, the most that any rank was asked for, the sum of the
// losses and the squared norm. The first stage of each replica adds its replica up, and the
// first replica's adds up the replicas and tells all. Collective over the stages and the
// replicas.
func (r *Runner) fold(mine []float64) ([]float64, error) {
	var agreed []byte
	stages, err := r.group.Gather(0, comm.Pack(mine))
	if err != nil {
		return nil, fmt.Errorf("over stages: %w", err)
	}
	if r.stage() == 0 {
		norm, replica := r.chain(stages)
		replicas, err := r.replicas.Gather(0, comm.Pack(replica))
		if err != nil {
			return nil, fmt.Errorf("over replicas: %w", err)
		}
		if agreed, err = r.replicas.Bcast(0, comm.Pack(addReplicas(norm, replicas, len(r.owners)*r.pieces))); err != nil {
			return nil, fmt.Errorf("over replicas: %w", err)
		}
	}
	if agreed, err = r.group.Bcast(0, agreed); err != nil {
		return nil, fmt.Errorf("over stages: %w", err)
	}
	return comm.Unpack[float64](agreed), nil
}

// addReplicas adds up the replicas' numbers (see chain) in the order of replicas. It returns the
// largest request to a replica, and the sum of the losses. It returns norm plus the squared norms
// of the replicas' own gradients, then of the pieces in their order.
func addReplicas(norm float64, replicas [][]byte, pieces int) []float64 {
	ask, sum, each := 0.0, 0.0, make([]float64, pieces)
	for _, b := range replicas {
		v := comm.Unpack[float64](b)
		ask = max(ask, v[0])
		norm += v[1]
		for i, x := range v[2:][:pieces] { // all but the owner's are 0
			each[i] += x
		}
		for _, loss := range v[2+pieces:] {
			sum += loss
		}
	}
	for _, x := range each {
		norm += x
	}
	return []float64{ask, sum, norm}
}

// chain returns, from what all stages sent, the squared norm of the gradients that
// replicas share, and what this replica tells the others: the most that a rank was
// asked for, the squared norms of its own gradients and of pieces, and its losses.
func (r *Runner) chain(stages [][]byte) (norm float64, replica []float64) {
	microbatches := r.schedule.Microbatches
	values := make([][]float64, len(stages)) // what is left of each stage's
	replica = make([]float64, 2, 2+len(r.lossLayers)*microbatches)
	for stage, b := range stages {
		v := comm.Unpack[float64](b)
		replica[0] = max(replica[0], v[0])
		values[stage] = v[1:]
	}
	for _, stage := range r.owners {
		v := values[stage]
		norm, replica[1] = norm+v[0], replica[1]+v[1]
		replica, values[stage] = append(replica, v[2:2+r.pieces]...), v[2+r.pieces:]
	}
	return norm, r.inOrder(replica, values, microbatches)
}

// inOrder appends a replica's losses to list, in the order of microbatches, and of layers. values
// are the stages' losses, by layer, then by microbatch.
func (r *Runner) inOrder(list []float64, values [][]float64, microbatches int) []float64 {
	byLayer := make([][]float64, len(r.lossLayers))
	for i, layer := range r.lossLayers {
		v := values[r.owners[layer]]
		byLayer[i], values[r.owners[layer]] = v[:microbatches], v[microbatches:]
	}
	for m := range microbatches {
		for _, losses := range byLayer {
			list = append(list, losses[m])
		}
	}
	return list
}
