package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// simAnswers are simulated runs of several kinds of dynamism.
type simAnswers []simAnswer

// all simulates a generated run of every kind, from a series' first table.
func (d madeUp) all(series record.Series, o study.Options, bar *record.Bar) (simAnswers, error) {
	var list simAnswers
	o.Show, o.Config.Run.TraceSteps = stepsOf(bar, runsOf*d.Steps*len(dynamic.Workloads())), 0
	for _, w := range dynamic.Workloads() {
		costs, err := d.generate(w.Name, series, &o)
		if err != nil {
			return nil, err
		}
		if err := within(o.Pack, costs); err != nil {
			return nil, err
		}
		a, err := simulated(costs, o, w.Name, "", false)
		if err != nil {
			return nil, fmt.Errorf("--dynamic %s: %w", w.Name, err)
		}
		a.Costs = series[0].Source()
		list = append(list, a)
	}
	return list, nil
}

// print writes a line for each kind.
func (list simAnswers) print(out io.Writer) error {
	first := list[0]
	header := []string{"clock=sim", "step", "tokens/s", "samples/s"}
	for _, b := range first.Baselines {
		header = append(header, b.Kind)
	}
	header = append(header, "ceiling", "small head", "dense", "moves", "costs")
	var rows [][]string
	for _, a := range list {
		row := []string{a.Dynamic, duration(a.Seconds / float64(a.Steps)), rate(a.Tokens), rate(a.Samples)}
		for _, b := range a.Baselines {
			row = append(row, factor(b.Speedup))
		}
		var ceiling, small float64
		if a.Better != nil {
			ceiling = a.Better.Ceiling
		}
		if a.Head.Small != nil {
			small = a.Head.Small.Speedup
		}
		costs := "vary"
		if a.Unchanged {
			costs = "fixed"
		}
		rows = append(rows, append(row, factor(ceiling), factor(small), factor(a.Dense.Speedup), fmt.Sprint(a.Moves), costs))
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	paragraph(out, "runs", "means of %d steps on %d ranks (clock=sim, on costs of clock=%s, changed by --dynamic)", first.Steps, first.Ranks, first.Costs)
	if first.Network != "" {
		paragraph(out, "network", "%s", assumedNetwork(first.Network))
	}
	if first.Weightless {
		paragraph(out, "no bytes", weightless)
	}
	for _, b := range first.Baselines {
		if paragraph(out, b.Kind, "times as fast as on %s cuts, which never move", b.Cuts); b.Error != "" {
			paragraph(out, "", "%s", b.Error)
		}
	}
	paragraph(out, "ceiling", "what the best cuts could gain over the better of these, were balancing free")
	times := study.SmallHead
	if s := first.Head.Small; s != nil {
		times = s.Times
	}
	paragraph(out, "small head", "times as fast as the better of these if the head, %.1f %% of the dense model's seconds, took %.0f %% of its own",
		100*first.Head.Share, 100*times)
	paragraph(out, "dense", "times as fast as the dense model at its best cuts: %s a step, %s tokens/s, %s samples/s", duration(first.Dense.Step), rate(first.Dense.Tokens), rate(first.Dense.Samples))
	common := func(set string) bool {
		return !slices.ContainsFunc(list, func(a simAnswer) bool { return !slices.Contains(a.Assumes, set) })
	}
	for _, a := range list {
		a.printKind(out, slices.DeleteFunc(slices.Clone(a.Assumes), common))
	}
	paragraph(out, "all", "%s", strings.Join(slices.DeleteFunc(slices.Clone(first.Assumes), func(set string) bool { return !common(set) }), " "))
	return nil
}

// printKind writes the notes on a kind beside its figures. assumes are the assumptions that differ
// from those of other kinds.
func (a simAnswer) printKind(out io.Writer, assumes []string) {
	text := strings.Join(assumes, " ")
	if a.Sampled != nil {
		text = a.sampled() + "; " + text
	}
	if a.Unchanged {
		text = "changes no layer's seconds under these settings, so that its row is the dense model's; " + text
	}
	if a.Stayed != "" {
		text = "no layer moved: " + a.Stayed + "; " + text
	}
	paragraph(out, a.Dynamic, "%s", text)
}
