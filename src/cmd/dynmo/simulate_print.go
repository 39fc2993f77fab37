package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"dynmo/src/lab/report"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// shown is the number of table lines that are printed. --json has all.
const shown = 40

// print writes the answer for people.
func (a simAnswer) print(out io.Writer) error {
	if err := a.printSegments(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := a.printFigures(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	a.printWords(out)
	if len(a.Replayed) == 0 {
		return nil
	}
	return a.printReplayed(out)
}

// printSegments writes a line for each segment.
func (a simAnswer) printSegments(out io.Writer) error {
	header := []string{"steps", "before", "stages", "schedule", "step", "exposed", "bound", "bubble", "moved"}
	var rows [][]string
	stages := a.Segments[0].Stages()
	for _, l := range a.Segments[:min(shown, len(a.Segments))] {
		moved := ""
		switch {
		case l.Moved > 0:
			moved = megabytes(l.Moved)
		case l.Moves > 0:
			moved = "free"
		}
		rows = append(rows, []string{
			fromTo(l.Step, l.Steps), before(l, stages), fmt.Sprint(l.Stages()), l.Schedule, duration(float64(l.StepSeconds)), duration(l.Rest()),
			ratio(float64(l.Makespan / l.LowerBound)), ratio(float64(l.BubbleRatio)), moved,
		})
		stages = l.Stages()
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	if more := len(a.Segments) - shown; more > 0 {
		fmt.Fprintf(out, "and %d lines more (--json)\n", more)
	}
	return nil
}

// printFigures writes the run beside the same work on static cuts. These are the baselines' cuts,
// and the run's first cuts if no baseline has them. The dense model follows.
func (a simAnswer) printFigures(out io.Writer) error {
	steps := float64(a.Steps)
	row := func(name string, seconds, tokens, samples, speedup, ceiling float64) []string {
		return []string{name, duration(seconds), duration(seconds / steps), rate(tokens), rate(samples), factor(speedup), factor(ceiling)}
	}
	rows := [][]string{row("this run", a.Seconds, a.Tokens, a.Samples, 0, 0)}
	if f := a.First; !slices.ContainsFunc(a.Baselines, func(b study.Baseline) bool { return b.Seconds == a.First.Seconds }) {
		rows = append(rows, row("the run's first cuts", f.Seconds, f.Tokens, f.Samples, f.Speedup, f.Ceiling))
	}
	for _, b := range a.Baselines {
		if b.Error == "" {
			rows = append(rows, row(fmt.Sprintf("%s, %s cuts", b.Kind, b.Cuts), b.Seconds, b.Tokens, b.Samples, b.Speedup, b.Ceiling))
		}
	}
	rows = append(rows, row("dense, best cuts", a.Dense.Step*steps, a.Dense.Tokens, a.Dense.Samples, a.Dense.Speedup, 0))
	return record.Table(out, []string{"clock=sim", "whole run", "step", "tokens/s", "samples/s", "speedup", "ceiling"}, rows)
}

// factor formats a speedup, "-" if it is not known.
func factor(x float64) string {
	if x == 0 {
		return "-"
	}
	return ratio(x) + "x"
}

// rate formats a number per second.
func rate(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// printWords explains the figures.
func (a simAnswer) printWords(out io.Writer) {
	costs := "clock=" + a.Costs
	if a.Dynamic != "" {
		costs += ", changed by --dynamic " + a.Dynamic
	}
	paragraph(out, "whole run", "%s on %d ranks (clock=sim, on costs of %s)", duration(a.Seconds), a.Ranks, costs)
	ceiling, over := "", "its first cuts, had these never moved"
	if a.Ceiling > 0 {
		ceiling = fmt.Sprintf(" (ceiling %s)", ratio(a.Ceiling))
	}
	if a.Better != nil {
		over = "the better cuts that never move, " + a.Over
	}
	paragraph(out, "speedup", "this run is %s times as fast as on %s%s", ratio(a.Speedup), over, ceiling)
	if a.Network != "" {
		paragraph(out, "network", "%s", assumedNetwork(a.Network))
	}
	if a.Weightless {
		paragraph(out, "no bytes", weightless)
	}
	for _, b := range a.Baselines {
		if b.Error != "" {
			paragraph(out, b.Kind, "%s", b.Error)
		}
	}
	paragraph(out, "head", "%s", a.head())
	if a.Unchanged {
		paragraph(out, "unchanged", "--dynamic %s changes no layer's seconds under these settings: the run is the dense model's", a.Dynamic)
	}
	if a.Stayed != "" {
		paragraph(out, "stayed", "%s", a.Stayed)
	}
	if placed, copied := a.copies(); placed > 0 {
		paragraph(out, "copies", "pieces of layers moved after %d steps; for copies the busiest rank sends or receives %s in a step, on the mean", placed, megabytes(copied))
	}
	paragraph(out, "idle", "bubble ratio %s: %s", ratio(1-a.Run.Idle.Busy/a.Run.Idle.Makespan()), idleWords(a.Run.Idle))
	if spent := a.Moving + a.Measuring + a.Deciding; spent > 0 {
		paragraph(out, "balancing", "%s of moves, %s of measuring, %s of decisions: %.2f %% of the run (clock=sim; measuring and deciding as in runs on CPUs of servers)", duration(a.Moving), duration(a.Measuring), duration(a.Deciding), 100*spent/a.Seconds)
	}
	if slices.ContainsFunc(a.Segments, func(l study.Segment) bool { return l.Stages() < a.Segments[0].Stages() }) {
		paragraph(out, "rank time", "%s over all ranks that hold layers, %s of what all ranks take if none moves", duration(a.RankSeconds), ratio(a.RankSeconds/(a.First.Seconds*float64(a.Ranks))))
	}
	if p := a.Packing; p != nil {
		for i, s := range p.Segments[1:] {
			paragraph(out, "packed", "before step %d: from %d ranks onto %d, on %s", s.Step, p.Segments[i].Ranks, s.Ranks, record.Counted(s.Nodes, "node"))
		}
		paragraph(out, "ranks", "%s", report.PackedSentence(*p))
	}
	if a.NotPacked != "" {
		paragraph(out, "not packed", "%s", a.NotPacked)
	}
	if a.Sampled != nil {
		paragraph(out, "sampled", "%s", a.sampled())
	}
	paragraph(out, "assumed", "%s", strings.Join(a.Assumes, " "))
}

// weightless explains an answer on costs without bytes.
const weightless = "moves were free: the costs have no bytes; memory was not checked"

// sampled describes which steps were simulated.
func (a simAnswer) sampled() string {
	s := a.Sampled
	return fmt.Sprintf("from step %d on one change in %d was simulated, and stands for the others; standard error of a step's mean %.2g %%", s.From, s.Interval, 100*s.Error)
}

// head describes the head's influence on a speedup over the better baseline.
func (a simAnswer) head() string {
	h := a.Head
	text := fmt.Sprintf("%.1f %% of the first costs' seconds", 100*h.Share)
	if h.Layers > 1 {
		text += fmt.Sprintf(", in %d slices", h.Layers)
	}
	s := h.Small
	if s == nil {
		return text
	}
	text += fmt.Sprintf("; with %.0f %% of its seconds the run would be %s times as fast as on the better static cuts", 100*s.Times, ratio(s.Speedup))
	if s.Ceiling > 0 {
		text += fmt.Sprintf(" (ceiling %s)", ratio(s.Ceiling))
	}
	if a.Better.Speedup > 1 {
		text += fmt.Sprintf(": the head makes %.0f %% of the gain", 100*s.OfGain)
	}
	return text
}

// before describes the changes before a segment. stages is the number of stages of the segment in
// front of it.
func before(l study.Segment, stages int) string {
	var list []string
	switch {
	case l.Stages() < stages:
		list = append(list, "packed")
	case l.Moves > 0:
		list = append(list, "moved")
	}
	if l.Change != "" {
		list = append(list, l.Change)
	}
	return strings.Join(list, ", ")
}
