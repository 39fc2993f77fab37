package figures

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// named returns the first workload of a kind.
func (s *studies) named(kind string) (workload, error) {
	i := slices.IndexFunc(s.workloads, func(w workload) bool { return w.Kind == kind })
	if i < 0 {
		return workload{}, fmt.Errorf("no workload has kind = %q, which this figure is of", kind)
	}
	return s.workloads[i], nil
}

// deepest returns a cell of the workload's last model, which has the most blocks.
func deepest(w workload, stages, replicas int) cell {
	return cell{workload: w, model: w.Models[len(w.Models)-1], of: w.main(), stages: stages, replicas: replicas, seed: 1}
}

// paperMemory is the bytes of the paper's GPUs.
const paperMemory = 80e9

// paperReplicas are the replicas of the paper's figure 4 and table 1.
const paperReplicas = 90

// table1 is vertical scaling, with the cells that run out of memory.
func (s *studies) table1() (Figure, error) {
	w, err := s.named("attention")
	if err != nil {
		return Figure{}, err
	}
	s.facts.Workloads, s.facts.Seeds, s.facts.Schedule = says([]workload{w}), 1, "1f1b"
	s.facts.Mesh = fmt.Sprintf("2, 4 and 8 stages x %d", paperReplicas)
	f := Figure{Title: "Table 1: samples/s of one replica, sparse attention", Notes: []string{
		"The paper's samples/s are taken for those of one replica. Microbatches: 4 for each stage, of 2 sequences. A limit of 80e9 bytes a GPU. The head is in, with a vocabulary of 50,304: it takes as long as 2.2 blocks. headless: the speedup without it. What is left then is what densities differ by, 0.2 to 0.32 of the scores.",
	}}
	columns := []string{"uniform", "", "diffusion", "", "partition", "", "speedup", "", "headless"}
	p := Panel{Title: "samples/s of static uniform cuts, of diffusion and of partition by time", Form: formCells, X: "layers, GPUs", Y: "samples/s"}
	for i, name := range columns {
		role := roleOurs
		if i%2 == 1 {
			name, role = "paper, "+columns[i-1], rolePaper
		}
		p.Series = append(p.Series, Series{Name: name, Role: role})
	}
	var tasks []func() error
	for _, layers := range []int{24, 32, 40, 48, 56} {
		for _, stages := range []int{2, 4, 8} {
			p.Groups = append(p.Groups, fmt.Sprintf("%d, %d", layers, stages))
			row := len(p.Groups) - 1
			for i := range p.Series {
				p.Series[i].Values = append(p.Series[i].Values, missing)
			}
			at := func(column int) *float64 { return &p.Series[column].Values[row] }
			for _, r := range s.paper.Table1.Rows {
				if int(r[0]) == layers && int(r[1]) == stages {
					*at(1), *at(3), *at(5), *at(7) = r[2], r[3], r[4], max(r[3], r[4])/r[2]
				}
			}
			tasks = append(tasks, func() error {
				for _, head := range []bool{true, false} {
					c := deepest(w, stages, paperReplicas)
					c.head, c.schedule = head, "1f1b"
					c.model.Set = append(slices.Clone(c.model.Set), fmt.Sprint("model.blocks=", layers))
					rates, err := s.rates(c)
					if err != nil {
						return err
					}
					if !head {
						*at(8) = max(rates[1], rates[2]) / rates[0]
						continue
					}
					*at(0), *at(2), *at(4), *at(6) = rates[0], rates[1], rates[2], max(rates[1], rates[2])/rates[0]
				}
				return nil
			})
		}
	}
	f.Panels = []Panel{p}
	return f, s.together(tasks)
}

// rates returns the samples per second of one replica of a cell on the paper's GPUs: on uniform
// cuts, by diffusion and by partition. One that runs out of memory is missing.
func (s *studies) rates(c cell) (rates [3]float64, err error) {
	r, err := s.prepare(c)
	if err != nil {
		return rates, err
	}
	for i, kind := range []string{"uniform", "diffusion", "partition"} {
		o := r.options
		o.Config.Balance.Kind, o.Static, o.Config.Balance.MemoryLimitBytes = kind, kind == "uniform", paperMemory
		x, err := study.Simulate(r.series, o)
		if _, full := errors.AsType[*balance.MemoryError](err); full {
			rates[i] = missing
			continue
		}
		if err != nil {
			return rates, err
		}
		rates[i] = r.sequences() / float64(c.replicas) * float64(x.Steps) / x.Seconds
	}
	return rates, nil
}

// figure4 is what packing comes to.
func (s *studies) figure4() (Figure, error) {
	w, err := s.named("prune")
	if err != nil {
		return Figure{}, err
	}
	s.facts.Workloads, s.facts.Seeds, s.facts.Schedule = says([]workload{w}), 1, "1f1b"
	s.facts.Mesh = fmt.Sprintf("8 stages x %d, packed onto fewer", paperReplicas)
	f := Figure{Title: "Figure 4: packing a model that is pruned onto fewer GPUs", Notes: []string{
		"The last model of the run, 90 % pruned, at its best cuts, with 32 microbatches of 2 sequences. GPUs have 80e9 bytes; no bar: it runs out of memory. In the run packing keeps throughput within 5 % of the dense model's (repack.kind = sustain). GPUs are those of a pipeline.", headNote,
		fmt.Sprintf("The paper has %v GPUs in the mean, and says that packing makes %.0f to %.0f %% of the speedup; here it gives GPUs back and some throughput with them.", s.paper.Repack.MeanGPUs, 100*s.paper.Repack.LeastShare, 100*s.paper.Repack.MostShare),
	}}
	per := Panel{Title: "Throughput per GPU", Form: formBars, Y: "tokens/s of a GPU"}
	all := Panel{Title: "Throughput", Form: formBars, Y: "million tokens/s"}
	steps := Panel{Title: "GPUs of a pipeline over steps", Form: formLines, X: "step", Y: "GPUs"}
	runs := Panel{Title: "Runs of 10,000 steps", Form: formCells, X: "model", Y: "GPUs and speedups over uniform cuts", Series: []Series{
		{Name: "GPUs, mean"}, {Name: "paper", Role: rolePaper}, {Name: "balanced"}, {Name: "and packed"}, {Name: "packed over balanced"}}}
	packings := []int{8, 6, 4, 2}
	for _, stages := range packings {
		per.Series = append(per.Series, Series{Name: fmt.Sprint(stages, " GPUs")})
		all.Series = append(all.Series, Series{Name: fmt.Sprint(stages, " GPUs")})
	}
	for _, m := range w.Models {
		c := deepest(w, 8, paperReplicas)
		c.model, c.schedule = m, "1f1b"
		r, err := s.prepare(c)
		if err != nil {
			return f, err
		}
		r.options.Config.Balance.MemoryLimitBytes = paperMemory
		var rates, each []float64 // all tokens in millions, and those of a GPU
		for _, stages := range packings {
			o := r.options
			o.Config.Parallel.Stages = stages
			rate := missing
			if plan, err := study.Plan(r.series[len(r.series)-1].Mean(), o); err == nil {
				rate = r.tokens(plan.Seconds)
			}
			rates, each = append(rates, rate/1e6), append(each, rate/float64(stages*paperReplicas))
		}
		all.group(m.Name, rates...)
		per.group(m.Name, each...)
		if err := s.packed(r, m, &steps, &runs); err != nil {
			return f, err
		}
	}
	f.Panels = []Panel{per, all, steps, runs}
	return f, nil
}

// packed adds a run that packs to the panels.
func (s *studies) packed(r run, m modelFile, steps, runs *Panel) error {
	var x [3]*study.Run // static, balanced, packed
	for i := range x {
		o := r.options
		switch i {
		case 0:
			o.Config.Balance.Kind, o.Static = "uniform", true
		case 2:
			o.Config.Repack.Kind, o.Config.Repack.Tolerance = "sustain", 0.05
		}
		var err error
		if x[i], err = study.Simulate(r.series, o); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	line := Series{Name: m.Name}
	for _, g := range x[2].Segments {
		stages := float64(g.Stages())
		line.X, line.Values = append(line.X, float64(g.Step), float64(g.Step+g.Steps)), append(line.Values, stages, stages)
	}
	steps.Series = append(steps.Series, line)
	balanced, packed := x[0].Seconds/x[1].Seconds, x[0].Seconds/x[2].Seconds
	runs.group(m.Name, x[2].RankSeconds/x[2].Seconds/paperReplicas, s.paper.Repack.MeanGPUs, balanced, packed, packed/balanced)
	return nil
}

// figure4Overhead is what balancing costs.
func (s *studies) figure4Overhead() (Figure, error) {
	s.sayFacts(s.workloads)
	f := Figure{Title: "Figure 4, right: overhead of balancing by part and kind", Notes: []string{
		"Share of the run's time that the best balancer takes, for the last model of each kind in figure 3. Measuring and deciding take the times of runs on CPUs of servers (dynmo simulate --help). The paper has at most a few single digits of per cent.", headNote,
	}}
	p := Panel{Title: "Share of the run", Form: formBars, Y: "per cent", Series: []Series{{Name: "measuring"}, {Name: "deciding"}, {Name: "moving layers"}}}
	for _, w := range s.workloads {
		stages, replicas := s.mesh(w)
		all, err := s.cells([]cell{deepest(w, stages, replicas)})
		if err != nil {
			return f, err
		}
		for i := range p.Series {
			p.Series[i].add(func(o outcome) float64 { return 100 * o.overheads[i] }, all[0])
		}
		p.Groups = append(p.Groups, w.Title)
	}
	f.Panels = []Panel{p}
	return f, nil
}

// figure5 is a step before layers move, and one after.
func (s *studies) figure5() (Figure, error) {
	w, err := s.named("prune")
	if err != nil {
		return Figure{}, err
	}
	const stages = 8
	s.facts.Workloads, s.facts.Seeds, s.facts.Mesh = says([]workload{w}), 1, fmt.Sprintf("%dx1, 16 microbatches", stages)
	f := Figure{Title: "Figure 5: a step of a pruned model, before and after balancing", Notes: []string{
		"The last step of the workload, on uniform cuts and on the best ones. Both axes of time are alike.", headNote,
	}}
	c := deepest(w, stages, 1)
	c.microbatches = 2 * stages
	r, err := s.prepare(c)
	if err != nil {
		return f, err
	}
	for _, kind := range []string{"uniform", "partition"} {
		o := r.options
		o.Config.Balance.Kind = kind
		plan, err := study.Plan(r.series[len(r.series)-1].Mean(), o)
		if err != nil {
			return f, err
		}
		p := Panel{Form: formTimeline, X: "milliseconds", Y: "stage", Series: []Series{{Name: "forward"}, {Name: "backward, inputs"}, {Name: "backward, weights", Role: roleStatic}}}
		p.Title = fmt.Sprintf("%s: %.0f ms, bubble ratio %.2f", map[string]string{"uniform": "Before, uniform cuts", "partition": "After, the best cuts"}[kind],
			1e3*plan.Step.Makespan(), plan.Step.BubbleRatio())
		for stage, spans := range plan.Step.Spans {
			for _, x := range spans {
				if i := slices.Index([]string{"F", "I", "W"}, x.Op.String()); i >= 0 {
					p.Series[i].X = append(p.Series[i].X, 1e3*x.Start)
					p.Series[i].Values = append(p.Series[i].Values, 1e3*x.End)
					p.Series[i].Rows = append(p.Series[i].Rows, stage)
				}
			}
		}
		f.Panels = append(f.Panels, p)
	}
	f.Panels[1].End = slices.Max(f.Panels[0].Series[2].Values)
	return f, nil
}

// figure7 is delays of messages.
func (s *studies) figure7() (Figure, error) {
	w, err := s.named("exit")
	if err != nil {
		return Figure{}, err
	}
	stages, replicas := s.mesh(w)
	s.facts.Workloads, s.facts.Mesh, s.facts.Seeds = says([]workload{w}), s.meshes([]workload{w}), 1
	f := Figure{Title: "Figure 7: messages that are delayed at random", Notes: []string{
		"Every message, and every move of a layer, is delayed by a factor of up to this, normally distributed (Sukhov and Kuznetsova 2009). The paper draws delays up to 4 and prints no numbers.", headNote,
	}}
	speedup := Panel{Title: "Speedup", Form: formLines, X: "largest delay, times", Y: "over the better static cuts", Series: []Series{{Name: "balancing"}, {Name: "total"}}}
	rate := Panel{Title: "Throughput", Form: formLines, X: "largest delay, times", Y: "million tokens/s", Series: []Series{{Name: "best of static cuts", Role: roleStatic}, {Name: "best of four balancers"}}}
	var cells []cell
	for most := 1.0; most <= 4; most++ {
		c := deepest(w, stages, replicas)
		c.delay = most
		cells = append(cells, c)
	}
	all, err := s.cells(cells)
	if err != nil {
		return f, err
	}
	for i, c := range cells {
		o := all[i][0]
		speedup.at(c.delay, o.balancing(), o.total())
		rate.at(c.delay, o.tokens[o.static()]/1e6, o.tokens[o.moving()]/1e6)
	}
	f.Panels = []Panel{speedup, rate}
	return f, nil
}

// figure8 is weak scaling.
func (s *studies) figure8() (Figure, error) {
	w, err := s.named("prune")
	if err != nil {
		return Figure{}, err
	}
	w.Steps, w.From, w.Every = 100, 30, 10
	s.facts.Workloads, s.facts.Seeds = []string{w.main().Source + "; pruned at the steps 30 to 70 of 100"}, 1
	s.facts.Mesh = "1 to 240 nodes of 4 GPUs: 4 to 24 stages, the other GPUs replicas"
	f := Figure{Title: "Figure 8: weak scaling of pruning, 48 layers", Notes: []string{
		"Microbatches: 4 for each stage, of 2 sequences, in each replica. Circles: partition by time without overheads, as in the paper. Filled squares, dashed: with them. Diamonds: the paper's largest speedup, " + number(s.paper.Weak.Speedup) + ".", headNote,
	}}
	p := Panel{Title: "Throughput", Form: formLines, X: "GPUs", Y: "tokens/s", Log: "xy", Series: []Series{{Name: "uniform cuts", Role: roleStatic}, {Name: "overheads left out"}, {Name: "with overheads"}}}
	gain := Panel{Title: "Speedup of partition by time over uniform cuts", Form: formLines, X: "GPUs", Y: "speedup", Log: "x", Series: []Series{{Name: "overheads left out"}, {Name: "with overheads"}, {Name: "paper, at most", Role: rolePaper}}}
	for _, nodes := range []int{1, 2, 6, 30, 60, 120, 240} {
		stages := min(24, 4*nodes)
		r, err := s.prepare(deepest(w, stages, 4*nodes/stages))
		if err != nil {
			return f, err
		}
		static := r.options
		static.Config.Balance.Kind, static.Static = "uniform", true
		before, err := study.Simulate(r.series, static)
		if err != nil {
			return f, err
		}
		after, err := study.Simulate(r.series, r.options)
		if err != nil {
			return f, err
		}
		free := after.Seconds - after.Moving - after.Measuring - after.Deciding
		rate := func(seconds float64) float64 { return r.tokens(seconds / float64(w.Steps)) }
		p.at(float64(4*nodes), rate(before.Seconds), rate(free), rate(after.Seconds))
		gain.at(float64(4*nodes), before.Seconds/free, before.Seconds/after.Seconds, s.paper.Weak.Speedup)
	}
	f.Panels = []Panel{p, gain}
	return f, nil
}

// appendixB is the paper's bubble ratio and its bound on rounds, beside what is simulated.
func (s *studies) appendixB() (Figure, error) {
	s.facts.Costs, s.facts.Workloads = "f = i = w = 1 of every stage, messages are free", []string{"none: equal stages; rounds on stages whose load falls as 1/sqrt(l+1), four layers a stage"}
	s.facts.Mesh, s.facts.Schedule, s.facts.Seeds = "2 to 32 stages x 1", "1f1b and zb-h1", 1
	f := Figure{Title: "Appendix B and lemma 2", Notes: []string{
		"Equation (1) with T_F = 1, T_B = 2, T_C = 0. It has no microbatches. The rounds are those of phase 1, until the sum of differences is a thousandth of the load. The bound is lemma 2's with a constant of 1, natural logarithms, S = P stages and that threshold.",
	}}
	ratio := Panel{Title: "Bubble ratio of equal stages", Form: formLines, X: "stages P", Y: "bubble ratio", Series: []Series{
		{Name: "equation (1)", Role: rolePaper}, {Name: "1f1b, M = P"}, {Name: "zb-h1, M = P"}, {Name: "zb-h1, M = 4P"}}}
	for p := 2; p <= 32; p += 2 {
		values := []float64{study.PaperBubble(p, 1, 2, 0)}
		for _, k := range []struct {
			kind schedule.Kind
			m    int
		}{{schedule.Kind1F1B, p}, {schedule.KindZBH1, p}, {schedule.KindZBH1, 4 * p}} {
			order, err := schedule.New(k.kind, p, 1, k.m)
			if err != nil {
				return f, err
			}
			equal := slices.Repeat([]cost.Stage{{Forward: 1, Input: 1, Weight: 1}}, p)
			values = append(values, sim.Run(sim.Step{Schedule: order, Costs: equal}).BubbleRatio())
		}
		ratio.at(float64(p), values...)
	}
	rounds := Panel{Title: "Rounds of diffusion", Form: formLines, X: "stages P", Y: "rounds", Log: "xy", Series: []Series{{Name: "measured"}, {Name: "lemma 2's bound", Role: rolePaper}}}
	for _, p := range []int{4, 8, 16, 32, 64, 128} {
		seconds := make([]float64, 4*p)
		sum := 0.0
		for l := range seconds {
			seconds[l] = 1 / math.Sqrt(float64(l+1))
			sum += seconds[l]
		}
		even := make(partition.Partition, p+1)
		for i := range even {
			even[i] = 4 * i
		}
		_, d, err := balance.Diffusion(balance.Problem{Seconds: seconds, Stages: p}, even, balance.DiffusionOptions{Look: 1, MaxRounds: 1e6})
		if err != nil {
			return f, err
		}
		n, gamma := float64(p), 1e-3
		bound := min(n*n*math.Log(n*n/gamma)*math.Log(n), n*n*math.Log(n)/gamma)
		rounds.at(n, float64(d.Rounds), bound)
	}
	f.Panels = []Panel{ratio, rounds}
	return f, nil
}
