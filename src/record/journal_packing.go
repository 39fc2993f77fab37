package record

import (
	"fmt"

	"dynmo/src/plan/policy"
)

// Packed tells that the model is packed onto fewer ranks, after its step was told as one
// that changed nothing.
func (j *Journal) Packed(d Done) error {
	if j == nil {
		return nil
	}
	return j.packed(d, d.Measured.Summary.Makespan())
}

// packed tells that the model was packed onto fewer ranks.
func (j *Journal) packed(d Done, makespan float64) error {
	p := Packed{
		Kind: d.Why.Pack.Kind, StagesBefore: d.Ran.Stages(), Stages: d.Next.Stages(),
		RanksBefore: d.Ran.Mesh.Size(), Ranks: d.Next.Mesh.Size(), NodesBefore: j.nodes(d.Ran), Nodes: j.nodes(d.Next),
		Microbatches: d.Next.Schedule.Microbatches, Exact: d.Why.Pack.Exact, Throughput: Float(d.Why.Pack.Throughput),
		Deciding: Float(d.Deciding), Moving: Float(d.Moving - d.Resizing), Resizing: Float(d.Resizing),
	}
	j.answered, j.unpacked = answerNone, policy.Packing{}
	j.observe.Say(fmt.Sprintf("step %d: %s", d.Step, p))
	detail, err := Detail(p)
	if err != nil {
		return err
	}
	return j.event(Event{
		Step: d.Step, Kind: Repack, Bytes: d.Moved.Bytes, Seconds: p.Deciding + Float(d.Moving),
		Before: Float(makespan), Predicted: Float(d.Why.Predicted), Detail: detail,
	})
}

// notPacked tells why a look at fewer stages packed nothing, if the last one did not come to
// the same.
func (j *Journal) notPacked(d Done) error {
	p := d.Why.Pack
	if p == nil || p.Kept == j.unpacked.Kept && p.Stages == j.unpacked.Stages {
		return nil
	}
	j.unpacked = *p
	why := p.Explain(j.config.Repack)
	j.observe.Say(fmt.Sprintf("step %d: not packed: %s", d.Step, why))
	return j.event(Event{Step: d.Step, Kind: Balance, Detail: map[string]any{
		"kept": "not packed: " + why, "stages": p.Stages, "throughput": p.Throughput,
	}})
}
