package main

import (
	"fmt"
	"io"

	"dynmo/src/comm/nccl"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/plan/search"
	"dynmo/src/record"
)

// planStage is a stage of a plan.
type planStage struct {
	Layers         []int   `json:"layers"`
	Forward        float64 `json:"forward"`
	BackwardInput  float64 `json:"backward_input"`
	BackwardWeight float64 `json:"backward_weight"`
	InFlight       []int   `json:"in_flight"` // by chunk
	Cap            int     `json:"in_flight_cap,omitempty"`
	Bytes          int64   `json:"bytes"`

	Memory cost.Memory `json:"memory"`                 // the bytes by purpose
	Copies int64       `json:"copies_bytes,omitempty"` // part of Bytes: room for copies of pieces of layers
}

// printMemory writes the memory of every stage by purpose, in MB. It leaves out columns that would
// be 0 on all stages.
func (a planAnswer) printMemory(out io.Writer) error {
	header := []string{"MB"}
	rows := make([][]string, len(a.Stages))
	for stage := range a.Stages {
		rows[stage] = []string{fmt.Sprint(stage)}
	}
	column := func(name string, bytes func(stage int) int64) {
		most := int64(0)
		for stage := range a.Stages {
			most = max(most, bytes(stage))
		}
		if most < 500 {
			return
		}
		header = append(header, name)
		for stage := range rows {
			digits := 3
			if most >= 1e9 {
				digits = 1
			}
			rows[stage] = append(rows[stage], fmt.Sprintf("%.*f", digits, float64(bytes(stage))/1e6))
		}
	}
	for _, kind := range []struct {
		name  string
		bytes func(m cost.Memory) int64
	}{
		{"weights", func(m cost.Memory) int64 { return m.Weights }},
		{"gradients", func(m cost.Memory) int64 { return m.Gradients }},
		{"moments", func(m cost.Memory) int64 { return m.Moments }},
		{"activations", func(m cost.Memory) int64 { return m.Activations }},
		{"recomputed", func(m cost.Memory) int64 { return m.Recomputed }},
		{"boundary", func(m cost.Memory) int64 { return m.Boundary }},
		{"scratch", func(m cost.Memory) int64 { return m.Scratch }},
		{"batch", func(m cost.Memory) int64 { return m.Batch }},
		{"sums", func(m cost.Memory) int64 { return m.Sums }},
	} {
		column(kind.name, func(stage int) int64 { return kind.bytes(a.Stages[stage].Memory) })
	}
	column("all", func(stage int) int64 { return a.Stages[stage].Bytes })
	column("copies", func(stage int) int64 { return a.Stages[stage].Copies })
	if a.Nccl != nil {
		column("NCCL est.", func(int) int64 { return a.Nccl.Bytes })
	}
	return record.Table(out, header, rows)
}

// twice describes which layers compute their forward twice, and how close the choice is to the
// best.
func (a planAnswer) twice() string {
	text := "the least that memory wants of these stages"
	if a.TwiceGap > 0 {
		text = fmt.Sprintf("at most %.2g %% above the least seconds that memory wants of these stages", 100*a.TwiceGap)
	}
	return fmt.Sprintf("layers %s compute their forward twice: %s", ranges(a.Twice), text)
}

// ncclOf returns NCCL's memory on a rank of a plan; nil if NCCL does not join the ranks. All ranks
// are on one host unless a network gives the ranks per node.
func ncclOf(o study.Options) *nccl.Needs {
	c := o.Config
	ranks := c.Parallel.Stages * c.Parallel.Replicas
	if c.Device.Kind != "cuda" || c.Comm.Transport == "host" || ranks == 1 {
		return nil
	}
	onHost := ranks
	if o.Network.PerNode > 0 {
		onHost = min(ranks, o.Network.PerNode)
	}
	n := nccl.NeedsOf(c.Parallel.Stages, c.Parallel.Replicas, onHost, c.Comm.NcclCTAs)
	return &n
}

// snapshotBytes returns the most host memory that the copy for a checkpoint takes of any rank:
// weights and moments. Replicas of a stage share the copy. It is 0 without checkpoints.
func snapshotBytes(c config.Config, best search.Plan) int64 {
	most := int64(0)
	for _, m := range best.Memory {
		if c.Checkpoint.Every != "never" {
			most = max(most, m.Weights+m.Moments)
		}
	}
	return most
}
