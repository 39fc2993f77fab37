package main

import (
	"dynmo/src/cost"
	"dynmo/src/study"
	"dynmo/src/trace"
)

// timelines returns a step of each of the first run.trace_steps segments, one
// behind the other. It simulates those again: the spans of a whole run would fill
// the memory.
func timelines(series cost.Series, o study.Options) ([]trace.Step, error) {
	most := max(1, o.Config.Run.TraceSteps)
	o.Spans = true
	run, err := study.Simulate(series[:min(most, len(series))], o) // at least as many segments
	if err != nil {
		return nil, err
	}
	var steps []trace.Step
	begin := 0.0
	for _, s := range run.Segments[:min(most, len(run.Segments))] {
		step := trace.Step{Step: s.Step, Clock: "sim", Stages: s.Plan.Step.Spans}
		for _, spans := range step.Stages {
			for i := range spans {
				spans[i].Start += begin
				spans[i].End += begin
			}
		}
		begin += s.Plan.Step.Makespan()
		steps = append(steps, step)
	}
	return steps, nil
}
