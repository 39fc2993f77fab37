package main

import (
	"fmt"
	"io"

	"dynmo/src/dynamic"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/study"
)

// simAnswers are runs of several kinds of dynamism.
type simAnswers []simAnswer

// all simulates a run of every kind, made up from a series' first table.
func (d madeUp) all(series profile.Series, o study.Options, bar *record.Bar) (simAnswers, error) {
	var list simAnswers
	o.Show = stepsOf(bar, runsOf*d.Steps*len(dynamic.Workloads))
	for _, w := range dynamic.Workloads {
		costs, err := d.generate(w.Name, series, o)
		if err != nil {
			return nil, err
		}
		a, err := simulated(costs, o)
		if err != nil {
			return nil, fmt.Errorf("--dynamic %s: %w", w.Name, err)
		}
		a.Costs, a.Dynamic = series[0].Clock, w.Name
		list = append(list, a)
	}
	return list, nil
}

// print writes a line for each kind, for people.
func (list simAnswers) print(out io.Writer) error {
	header := []string{"dynamic", "step time", "tokens/s"}
	for _, b := range list[0].Baselines {
		header = append(header, "over "+b.Kind, "ceiling")
	}
	header = append(header, "moves", "moved")
	factor := func(x float64) string {
		if x == 0 {
			return "-"
		}
		return ratio(x) + "x"
	}
	var rows [][]string
	for _, a := range list {
		row := []string{a.Dynamic, duration(a.Seconds / float64(a.steps())), fmt.Sprintf("%.0f", a.Tokens)}
		for _, b := range a.Baselines {
			row = append(row, factor(b.Speedup), factor(b.Ceiling))
		}
		times, bytes := a.moves()
		rows = append(rows, append(row, fmt.Sprint(times), megabytes(bytes)))
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	first := list[0]
	fmt.Fprintf(out, "\nmeans of runs of %d steps on %d ranks  (clock=sim, on costs of clock=%s, changed by --dynamic)\n", first.steps(), first.Ranks, first.Costs)
	for _, b := range first.Baselines {
		fmt.Fprintf(out, "over %s: how many times as fast as on %s cuts, which never move\n", b.Kind, b.Cuts)
		if b.Error != "" {
			fmt.Fprintf(out, "%s: %s\n", b.Kind, b.Error)
		}
	}
	for _, a := range list {
		if a.Stayed != nil {
			fmt.Fprintf(out, "%s: no layer moved: %s\n", a.Dynamic, a.Stayed.Why)
		}
	}
	return nil
}

// steps returns how many steps the run has.
func (a simAnswer) steps() int {
	n := 0
	for _, s := range a.Segments {
		n += s.Steps
	}
	return n
}

// moves returns how often layers moved, and how many bytes of one replica.
func (a simAnswer) moves() (times int, bytes int64) {
	for _, s := range a.Segments {
		if s.Moved > 0 {
			times, bytes = times+1, bytes+s.Moved
		}
	}
	return times, bytes
}
