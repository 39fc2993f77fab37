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
	for _, g := range w.groups {
		first := g.runs[0]
		moved := slices.DeleteFunc(slices.Clone(g.runs), func(i int) bool { return !w.moved(i) })
		var sentence string
		switch {
		case len(g.runs) > 1 && len(moved) > 0:
			sentence = w.verdict(moved, w.staticCuts(g)) + "; " + w.same(g.runs)
		case len(g.runs) == 1 && w.of[first] != nil:
			lines := append([]string{w.runs[first].headline(*w.of[first])}, w.runs[first].remarks()...)
			sentence = strings.Join(lines, "; ")
		default:
			continue
		}
		row := w.runs[first].row()
		names = append(names, fmt.Sprintf("%s, %s: ", row.Run, row.layout()))
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

// balancer names what cut the layers of a run.
func (w Worths) balancer(i int) string { return shortly(w.runs[i].Config.Balance.String()) }

// staticCuts names the cuts with which the runs of a group are compared.
func (w Worths) staticCuts(g group) string {
	if g.static < 0 {
		return "their first cuts"
	}
	name := w.balancer(g.static)
	if slices.ContainsFunc(g.runs, func(i int) bool { return w.of[i] != nil && !w.moved(i) && w.balancer(i) != name }) {
		return "the best cuts that never move, " + name
	}
	if name == "uniform" {
		name = "even"
	}
	return name + " cuts that never move"
}

// verdict returns the gain of moving layers over static cuts for runs that did the same work.
func (w Worths) verdict(moved []int, static string) string {
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
		worth, name := w.of[i], w.balancer(i)
		if speedups[name] == nil {
			balancers = append(balancers, name)
		}
		speedups[name] = append(speedups[name], worth.Speedup)
		low, high, ceiling = min(low, worth.Low), max(high, worth.High), max(ceiling, worth.Ceiling)
		noise = noise && worth.IsNoise()
	}
	within, these := fmt.Sprintf("%.2fx to %.2fx; ceiling %.2fx", low, high, ceiling), "these runs"
	if w.runs[moved[0]].simulated() {
		within, these = fmt.Sprintf("ceiling %.2fx", ceiling), "these simulated runs"
	}
	if noise {
		return fmt.Sprintf("moving layers made %s neither faster nor slower than %s, within noise (%s)", these, static, within)
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
	return fmt.Sprintf("moving layers made %s %s %s %s (%s)", these, strings.Join(parts, " and "), comparison, static, within)
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
