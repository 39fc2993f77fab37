// Package profile turns the traces of all ranks into one cost table. What
// comes in is each rank's spans of a step; what goes out, the same on every
// rank, is what each layer costs and how the stages were used.
package profile

import (
	"encoding/json"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/trace"
)

// report is what one stage tells the others.
type report struct {
	Summary trace.Summary
	IDs     []int // chain positions of Layers
	Layers  []cost.Layer
	Memory
	Joules float64
}

// Memory is memory of a rank in bytes, besides what layers account for.
type Memory struct {
	Resident int64 // in RAM, whatever for
	Kept     int64 // kept for layers to come
}

// Step is what a step was, on all ranks.
type Step struct {
	Costs   cost.Table    // medians over the step's microbatches, the largest of the replicas
	Summary trace.Summary // of the slowest replica
	Memory  []Memory      // by stage: the largest of the replicas
	Joules  float64       // of all ranks; -1 if one does not know its own
}

// Gather returns what all ranks measured in a step, memory and joules being this
// rank's.
// Collective over the stages (rank = stage) and
// the replicas (rank = replica).
func Gather(stages, replicas *comm.Group, x *model.Exec, s *model.Stage, spans []trace.Span, memory Memory, joules float64) (Step, error) {
	r := local(x, s, spans, replicas.Size())
	r.Memory, r.Joules = memory, joules
	mine, err := json.Marshal(r)
	if err != nil {
		return Step{}, fmt.Errorf("profile: %w", err)
	}
	all, err := replicas.Allgather(mine)
	if err != nil {
		return Step{}, fmt.Errorf("profile: over replicas: %w", err)
	}
	column, err := json.Marshal(all)
	if err != nil {
		return Step{}, fmt.Errorf("profile: %w", err)
	}
	rows, err := stages.Allgather(column)
	if err != nil {
		return Step{}, fmt.Errorf("profile: over stages: %w", err)
	}
	return join(x.Device.Clock().Kind(), s.Config.Layers(), rows)
}

// local sums up this rank's spans.
func local(x *model.Exec, s *model.Stage, spans []trace.Span, replicas int) report {
	samples := make([][trace.W + 1][]float64, s.Config.Layers()) // by layer of the chain and op
	for _, sp := range spans {
		if sp.Op.Pipeline() {
			of := &samples[sp.Layer][sp.Op]
			*of = append(*of, sp.End-sp.Start)
		}
	}
	r := report{Summary: trace.Summarise(spans)}
	for _, l := range s.Layers {
		c := l.Cost(x)
		c.Bytes.Workspace += pipeline.ReduceBytes(c.Bytes.Gradients, replicas)
		c.Forward = trace.Median(samples[l.ID][trace.F])
		c.BackwardInput = trace.Median(samples[l.ID][trace.I])
		c.BackwardWeight = trace.Median(samples[l.ID][trace.W])
		r.IDs, r.Layers = append(r.IDs, l.ID), append(r.Layers, c)
	}
	return r
}

// join merges the reports of all ranks on the layers of a chain; rows are by
// stage, each a column of replicas.
func join(clock string, layers int, rows [][]byte) (Step, error) {
	step := Step{Costs: cost.Table{Clock: clock, Layers: make([]cost.Layer, layers)}, Memory: make([]Memory, len(rows))}
	table := &step.Costs
	var replicas [][]trace.Summary // by replica, by stage
	for stage, row := range rows {
		var column [][]byte
		if err := json.Unmarshal(row, &column); err != nil {
			return Step{}, fmt.Errorf("profile: report of stage %d: %w", stage, err)
		}
		for d, b := range column {
			var r report
			if err := json.Unmarshal(b, &r); err != nil {
				return Step{}, fmt.Errorf("profile: report of stage %d, replica %d: %w", stage, d, err)
			}
			if d == len(replicas) {
				replicas = append(replicas, nil)
			}
			replicas[d] = append(replicas[d], r.Summary)
			if r.Joules < 0 || step.Joules < 0 {
				step.Joules = -1 // a sum of some GPUs' energy would be taken for all
			} else {
				step.Joules += r.Joules
			}
			m := &step.Memory[stage]
			m.Resident, m.Kept = max(m.Resident, r.Resident), max(m.Kept, r.Kept)
			for i, l := range r.Layers {
				to := &table.Layers[r.IDs[i]]
				if d == 0 {
					*to = l
				}
				to.Forward = max(to.Forward, l.Forward)
				to.BackwardInput = max(to.BackwardInput, l.BackwardInput)
				to.BackwardWeight = max(to.BackwardWeight, l.BackwardWeight)
			}
		}
	}
	for d, parts := range replicas {
		if s := trace.Join(parts); d == 0 || s.Makespan() > step.Summary.Makespan() {
			step.Summary = s
		}
	}
	return step, nil
}
