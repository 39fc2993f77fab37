package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// mainCells returns a cell for each model of a workload.
func (s *studies) mainCells(w workload, head, half bool) (cells []cell) {
	stages, replicas := s.mesh(w)
	for _, m := range w.Models {
		cells = append(cells, cell{workload: w, model: m, of: w.main(), stages: stages, replicas: replicas, head: head, half: half})
	}
	return cells
}

// meshes says which workloads each mesh has.
func (s *studies) meshes(list []workload) string {
	var meshes []string
	titles := map[string][]string{}
	for _, w := range list {
		stages, replicas := s.mesh(w)
		mesh := fmt.Sprintf("%dx%d", stages, replicas)
		if titles[mesh] == nil {
			meshes = append(meshes, mesh)
		}
		titles[mesh] = append(titles[mesh], w.Title)
	}
	for i, mesh := range meshes {
		names := titles[mesh]
		text := names[len(names)-1]
		if len(names) > 1 {
			text = strings.Join(names[:len(names)-1], ", ") + " and " + text
		}
		meshes[i] = text + " on " + mesh
	}
	return strings.Join(meshes, "; ")
}

// sayCosts sets the facts of figures of several workloads.
func (s *studies) sayFacts(list []workload) {
	s.facts.Workloads, s.facts.Mesh = says(list), s.meshes(list)
	for _, w := range list {
		if w.Costs != "" && w.Costs != s.Costs {
			s.facts.Costs += ", of " + w.Title + " for " + w.Costs
		}
	}
}

// withPaper appends the paper's series that have a value.
func withPaper(list []Series, paper ...Series) []Series {
	for _, s := range paper {
		if slices.ContainsFunc(s.Values, func(x float64) bool { return !math.IsNaN(x) }) {
			list = append(list, s)
		}
	}
	return list
}

// headNote says what became of the head.
const headNote = "The head is left out (its seconds are 0), since the paper moves blocks; fig3 has both."

// figure1 is idle time by kind before and after balancing.
func (s *studies) figure1() (Figure, error) {
	s.sayFacts(s.workloads)
	f := Figure{Title: "Figure 1: bubble ratio by kind, before and after balancing", Notes: []string{
		"Bubble ratio: idle seconds of all stages between the first and the last instruction of a step, over all seconds. before: the better static cuts. after: the best of four balancers. A point is the mean over the models of a kind.",
		headNote,
	}}
	p := Panel{Title: "Mean over the models of each kind", Form: formBars, X: "", Y: "bubble ratio"}
	before, after := Series{Name: "before (static cuts)", Role: roleStatic}, Series{Name: "after balancing"}
	paperBefore, paperAfter := Series{Name: "paper, before", Role: rolePaper}, Series{Name: "paper, after", Role: rolePaper}
	for _, w := range s.workloads {
		cells := s.mainCells(w, false, false)
		all, err := s.cells(cells)
		if err != nil {
			return f, err
		}
		before.add(func(o outcome) float64 { return o.idle[o.static()] }, all...)
		after.add(func(o outcome) float64 { return o.idle[o.moving()] }, all...)
		c := s.paper.Kinds[w.name]
		paperBefore.Values, paperAfter.Values = append(paperBefore.Values, orMissing(c.Before)), append(paperAfter.Values, orMissing(c.After))
		p.Groups = append(p.Groups, w.Title)
	}
	p.Series = withPaper([]Series{before, after}, paperBefore, paperAfter)
	f.Panels = []Panel{p}
	return f, nil
}

// figure3 is speedups of all kinds.
func (s *studies) figure3() (Figure, error) {
	s.sayFacts(s.workloads)
	f := Figure{Title: "Figure 3: speedup by kind and model", Notes: []string{
		"balancing: the best of four balancers over the better of two static cuts, on the same work. total: the same over the dense model on uniform cuts. ceiling: what no balancer of whole blocks can exceed on that work, without the head. Diamonds: the paper's largest speedup of the kind, over what the title says. Overheads are in.",
	}}
	for _, w := range s.workloads {
		p := Panel{Title: w.Title, Form: formBars, Y: "speedup"}
		if over := s.paper.Kinds[w.name].Over; over != "" {
			p.Title += ", diamonds " + over
		}
		list := []Series{{Name: "balancing"}, {Name: "balancing, half blocks"}, {Name: "balancing, with the head"}, {Name: "total"}, {Name: "ceiling, whole blocks", Role: roleCeiling}}
		paper := Series{Name: "paper, at most", Role: rolePaper}
		cells := s.mainCells(w, false, false)
		n := len(cells)
		all, err := s.cells(slices.Concat(cells, s.mainCells(w, false, true), s.mainCells(w, true, false)))
		if err != nil {
			return f, err
		}
		for i, c := range cells {
			list[0].add(outcome.balancing, all[i])
			list[1].add(outcome.balancing, all[n+i])
			list[2].add(outcome.balancing, all[2*n+i])
			list[3].add(outcome.total, all[i])
			list[4].add(func(o outcome) float64 { return o.ceiling }, all[i])
			paper.Values = append(paper.Values, orMissing(s.paper.Kinds[w.name].Speedup))
			p.Groups = append(p.Groups, c.model.Name)
		}
		list[4].Low, list[4].High = nil, nil
		p.Series = withPaper(list, paper)
		f.Panels = append(f.Panels, p)
	}
	return f, nil
}

// figure3Throughput is the throughput of all balancers.
func (s *studies) figure3Throughput() (Figure, error) {
	s.sayFacts(s.workloads)
	f := Figure{Title: "Figure 3: throughput of static cuts and of four balancers", Notes: []string{
		"dense: the model before anything changed, on uniform cuts. of best cuts: throughput of the best balancer's cuts over that of the best contiguous cuts, found anew for each change. Egeria freezes on uniform cuts that never move, as the first bars do. Tutel works inside a layer and is not simulated.",
		headNote,
	}}
	share := Panel{Title: "Throughput of the best balancer's cuts over that of the best contiguous cuts", Form: formCells, X: "model", Y: "ratio", Series: []Series{{Name: "of best cuts"}}}
	for _, w := range s.workloads {
		p := Panel{Title: w.Title, Form: formBars, Y: "million tokens/s"}
		cells := s.mainCells(w, false, false)
		all, err := s.cells(cells)
		if err != nil {
			return f, err
		}
		dense := Series{Name: "dense, uniform", Role: roleStatic}
		for i, c := range cells {
			dense.add(func(o outcome) float64 { return o.dense / 1e6 }, all[i])
			share.Series[0].add(func(o outcome) float64 { return o.ofBest }, all[i][:1])
			p.Groups = append(p.Groups, c.model.Name)
			share.Groups = append(share.Groups, w.Title+", "+c.model.Name)
		}
		for b, x := range balancers {
			series := Series{Name: x.name, Role: x.role}
			for i := range cells {
				series.add(func(o outcome) float64 { return o.tokens[b] / 1e6 }, all[i])
			}
			p.Series = append(p.Series, series)
			if b == firstDynamic-1 {
				p.Series = append(p.Series, dense)
			}
		}
		f.Panels = append(f.Panels, p)
	}
	f.Panels = append(f.Panels, share)
	return f, nil
}

// figure3Cases is the speedups under all workloads of each kind.
func (s *studies) figure3Cases() (Figure, error) {
	f := Figure{Title: "Figure 3 under every workload", Notes: []string{
		"One model of each kind, the last of its list. Names of bars as in figure 3. Workloads that are assumed say so.", headNote,
		"Over even work: seconds of a step, with all overheads, over those of a step at the best cuts in which replicas have equal work.",
	}}
	over := Panel{Title: "Step over a step of even work", Form: formBars, Y: "ratio", Series: []Series{{Name: "static cuts", Role: roleStatic}, {Name: "best balancer"}}}
	s.facts.Mesh = s.meshes(s.workloads)
	for _, w := range s.workloads {
		m := w.Models[len(w.Models)-1]
		p := Panel{Title: w.Title + ", " + m.Name, Form: formBars, Y: "speedup"}
		stages, replicas := s.mesh(w)
		var cells []cell
		for _, c := range w.Cases {
			cells = append(cells, cell{workload: w, model: m, of: c, stages: stages, replicas: replicas})
			p.Groups = append(p.Groups, c.Name)
			s.facts.Workloads = append(s.facts.Workloads, w.Title+", "+c.Name+": "+c.Source)
		}
		all, err := s.cells(cells)
		if err != nil {
			return f, err
		}
		list := []Series{{Name: "balancing"}, {Name: "total"}, {Name: "ceiling, whole blocks", Role: roleCeiling}}
		paper := Series{Name: "paper, at most", Role: rolePaper}
		for i := range cells {
			list[0].add(outcome.balancing, all[i])
			list[1].add(outcome.total, all[i])
			list[2].add(func(o outcome) float64 { return o.ceiling }, all[i])
			paper.Values = append(paper.Values, orMissing(s.paper.Kinds[w.name].Speedup))
			if all[i][0].even > 0 {
				over.Groups = append(over.Groups, p.Groups[i])
				over.Series[0].add(func(o outcome) float64 { return o.even / o.tokens[o.static()] }, all[i])
				over.Series[1].add(func(o outcome) float64 { return o.even / o.tokens[o.moving()] }, all[i])
			}
		}
		list[2].Low, list[2].High = nil, nil
		p.Series = withPaper(list, paper)
		f.Panels = append(f.Panels, p)
	}
	if over.Groups != nil {
		f.Panels = append(f.Panels, over)
	}
	return f, nil
}
