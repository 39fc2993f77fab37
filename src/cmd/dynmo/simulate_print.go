package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"dynmo/src/record"
	"dynmo/src/trace"
)

// shown is how many lines of a table are printed; --json has all.
const shown = 40

// print writes the answer for people.
func (a simAnswer) print(out io.Writer) error {
	segments := joined(a.Segments)
	header := slices.Concat([]string{"steps", "before", "stages", "schedule", "step time", "allreduce", "to bound", "bubble ratio"}, idleParts, []string{"moved"})
	var rows [][]string
	stages := a.Segments[0].Stages
	for _, l := range segments[:min(shown, len(segments))] {
		moved := ""
		if l.Moved > 0 {
			moved = megabytes(l.Moved)
		}
		rows = append(rows, slices.Concat([]string{
			fromTo(l.Step, l.Steps), l.before(stages), fmt.Sprint(l.Stages), l.Schedule, duration(l.Seconds), duration(l.Exposed),
			ratio(l.Makespan / l.Bound), ratio(l.Bubble),
		}, idleShares(l.Idle), []string{moved}))
		stages = l.Stages
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	if more := len(segments) - shown; more > 0 {
		fmt.Fprintf(out, "and %d lines more (--json)\n", more)
	}
	costs := "clock=" + a.Costs
	if a.Dynamic != "" {
		costs += ", changed by --dynamic " + a.Dynamic
	}
	fmt.Fprintf(out, "\nwhole run    %s on %d ranks, %.0f tokens/s, of which %s move layers  (clock=sim, on costs of %s)\n",
		duration(a.Seconds), a.Ranks, a.Tokens, duration(a.Moving), costs)
	a.printBaselines(out)
	if a.Stayed != nil {
		fmt.Fprintf(out, "stayed       %s\n", a.Stayed.Why)
	}
	if whole := a.Static * float64(a.Ranks); slices.ContainsFunc(a.Segments, func(l simSegment) bool { return l.Stages < a.Segments[0].Stages }) {
		fmt.Fprintf(out, "rank time    %s over all ranks that hold layers, %s of what all ranks take if none moves\n", duration(a.RankSeconds), ratio(a.RankSeconds/whole))
	}
	if len(a.Replayed) == 0 {
		return nil
	}
	return a.printReplayed(out)
}

// printBaselines writes what the same work takes on cuts that never move: others',
// and the first cuts of the run where they are no other's.
func (a simAnswer) printBaselines(out io.Writer) {
	list := a.Baselines
	if !slices.ContainsFunc(list, func(b simBaseline) bool { return b.Seconds == a.Static }) {
		list = append([]simBaseline{{Kind: "first", Cuts: "the run's first", Seconds: a.Static, Speedup: a.Speedup, Ceiling: a.Ceiling, Tokens: a.Tokens / a.Speedup}}, list...)
	}
	for _, b := range list {
		if b.Error != "" {
			fmt.Fprintf(out, "%-12s %s\n", b.Kind, b.Error)
			continue
		}
		ceiling := ""
		if b.Ceiling > 0 {
			ceiling = fmt.Sprintf(" (ceiling %s)", ratio(b.Ceiling))
		}
		fmt.Fprintf(out, "%-12s %s, %.0f tokens/s on %s cuts, which never move: the run is %s times as fast%s\n",
			b.Kind, duration(b.Seconds), b.Tokens, b.Cuts, ratio(b.Speedup), ceiling)
	}
}

// joined returns the segments with those put together that differ in nothing, as
// where a balancer was asked and changed nothing.
func joined(segments []simSegment) []simSegment {
	var list []simSegment
	for _, l := range segments {
		if n := len(list) - 1; n >= 0 && l.Change == "" && l.Moved == 0 && l.Stages == list[n].Stages &&
			l.Schedule == list[n].Schedule && l.Seconds == list[n].Seconds && slices.Equal(l.Cuts, list[n].Cuts) {
			list[n].Steps += l.Steps
			continue
		}
		list = append(list, l)
	}
	return list
}

// before says what happened before a segment that follows one on so many stages.
func (l simSegment) before(stages int) string {
	var list []string
	switch {
	case l.Stages < stages:
		list = append(list, "repacked")
	case l.Moved > 0:
		list = append(list, "balanced")
	}
	if l.Change != "" {
		list = append(list, l.Change)
	}
	return strings.Join(list, ", ")
}

// printReplayed writes how well the simulator knows what really ran.
func (a simAnswer) printReplayed(out io.Writer) error {
	var rows [][]string
	var errors, aheads []float64
	for _, r := range a.Replayed {
		row := []string{fromTo(r.Step, max(1, r.Steps)), duration(r.Measured), duration(r.Predicted), percent(r.Error), "", ""}
		errors = append(errors, math.Abs(r.Error))
		if r.Ahead > 0 {
			wrong := r.Ahead/r.Measured - 1
			row[4], row[5] = duration(r.Ahead), percent(wrong)
			aheads = append(aheads, math.Abs(wrong))
		}
		rows = append(rows, row)
	}
	fmt.Fprintf(out, "\nmakespan of what really ran (clock=%s), and as simulated (clock=sim)\n", a.Costs)
	header := []string{"steps", "measured", "predicted", "error", "before the move", "error"}
	if err := record.Table(out, header, rows[:min(shown, len(rows))]); err != nil {
		return err
	}
	if more := len(rows) - shown; more > 0 {
		fmt.Fprintf(out, "and %d lines more (--json)\n", more)
	}
	fmt.Fprintf(out, "error: median %.2f %%, largest %.2f %%\n", 100*trace.Median(errors), 100*slices.Max(errors))
	if len(aheads) > 0 {
		fmt.Fprintf(out, "error before the move: median %.2f %%, largest %.2f %%\n", 100*trace.Median(aheads), 100*slices.Max(aheads))
	}
	return nil
}

// percent writes a share with its sign.
func percent(share float64) string { return fmt.Sprintf("%+.2f %%", 100*share) }
