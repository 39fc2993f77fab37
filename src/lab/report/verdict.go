package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/lab/verdict"
	"dynmo/src/trace"
)

// Verdicts returns one sentence for each group of runs that did the same work. The sentence gives
// the gain of moving layers, if a run of the group moved layers or it is the only run. It also says
// whether moving changed losses. Runs under one balancer are summed up together. With several
// groups each sentence begins with the name and layout of the group's first run.
func (w Worths) Verdicts() []string {
	var list, names []string
	for _, group := range w.groups {
		moved := slices.DeleteFunc(slices.Clone(group), func(i int) bool { return !w.moved(i) })
		var sentence string
		switch {
		case len(group) > 1 && len(moved) > 0:
			sentence = w.verdict(moved) + "; " + w.same(group)
		case len(group) == 1 && w.of[group[0]] != nil:
			lines := append([]string{w.runs[group[0]].headline(*w.of[group[0]])}, w.runs[group[0]].remarks()...)
			sentence = strings.Join(lines, "; ")
		default:
			continue
		}
		first := w.runs[group[0]].row()
		names = append(names, fmt.Sprintf("%s, %s: ", first.Run, first.layout()))
		list = append(list, sentence+".")
	}
	if len(list) > 1 {
		for i, name := range names {
			list[i] = name + list[i]
		}
	}
	return list
}

func (w Worths) moved(i int) bool { return w.of[i] != nil && w.of[i].Moved }

// verdict returns the gain of moving layers for runs that did the same work.
func (w Worths) verdict(moved []int) string {
	speedups := make(map[string][]float64)
	var balancers []string
	low, high, ceiling := math.Inf(1), 0.0, 0.0
	for _, i := range moved {
		if doubt := w.of[i].Doubt; doubt != "" {
			return "the speedup is not meaningful: " + doubt
		}
	}
	noise := true
	for _, i := range moved {
		worth, name := w.of[i], shortly(w.runs[i].Config.Balance.String())
		if speedups[name] == nil {
			balancers = append(balancers, name)
		}
		speedups[name] = append(speedups[name], worth.Speedup)
		low, high, ceiling = min(low, worth.Low), max(high, worth.High), max(ceiling, worth.Ceiling)
		noise = noise && worth.IsNoise()
	}
	within := fmt.Sprintf("%.2fx to %.2fx; ceiling %.2fx", low, high, ceiling)
	if noise {
		return fmt.Sprintf("moving layers made these runs no faster and no slower than noise does (%s)", within)
	}
	comparison := "faster than"
	parts := make([]string, len(balancers))
	for i, name := range balancers {
		speedup := trace.Median(speedups[name])
		if speedup < 1-verdict.LeastGain {
			comparison = "as fast as"
		}
		parts[i] = fmt.Sprintf("%.2fx (%s)", speedup, name)
	}
	return fmt.Sprintf("moving layers made these runs %s %s cuts that never move (%s)", strings.Join(parts, " and "), comparison, within)
}

// same reports whether runs have the same losses and, if known, the same weights.
func (w Worths) same(group []int) string {
	first := w.runs[group[0]]
	if first.Config.Dynamic.Replay != "" {
		return "loads were forced (dynamic.replay): there are no losses"
	}
	for _, i := range group {
		if w.runs[i].simulated() {
			return "a simulated run has no losses to compare"
		}
	}
	for _, i := range group[1:] {
		r := w.runs[i]
		for step := range min(len(first.Metrics), len(r.Metrics)) {
			if a, b := first.Metrics[step].Loss, r.Metrics[step].Loss; a != b && (a == a || b == b) {
				return fmt.Sprintf("losses of %s and %s differ from step %d on", first.Dir, r.Dir, step)
			}
		}
		if a, b := first.End, r.End; a != nil && b != nil && a.Hash != b.Hash {
			return fmt.Sprintf("weights of %s and %s differ", first.Dir, r.Dir)
		}
	}
	return "losses are the same to the last digit"
}
