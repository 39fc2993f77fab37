package main

import (
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/trace"
)

// timelines returns a step of each of the first run.trace_steps stretches, one
// behind the other. It simulates those stretches again: the spans of a whole run
// would fill the memory.
func timelines(series profile.Series, o plan.Options) ([]trace.Step, error) {
	most := max(1, o.Config.Run.TraceSteps)
	o.Spans = true
	run, err := plan.Walk(series[:min(most, len(series))].Costs(), o) // at least as many legs
	if err != nil {
		return nil, err
	}
	var steps []trace.Step
	begin := 0.0
	for _, l := range run.Legs[:min(most, len(run.Legs))] {
		step := trace.Step{Step: l.Step, Clock: "sim", Stages: l.Plan.Step.Spans}
		for _, spans := range step.Stages {
			for i := range spans {
				spans[i].Start += begin
				spans[i].End += begin
			}
		}
		begin += l.Plan.Step.Makespan()
		steps = append(steps, step)
	}
	return steps, nil
}
