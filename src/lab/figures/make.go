package figures

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"dynmo/src/dynamic"
)

// Options are the assumptions of Make, and the places of its inputs.
type Options struct {
	Results  string // folder of kept results, with workloads and paper.toml
	Workload string // the only file of a workload; "": all files of Results
	Costs    string // cost table, a name of roofline.Names
	Mesh     [2]int // stages and replicas instead of the paper's; 0: the paper's
	Grain    string // block or half
	Seeds    int
	Revision string
	Show     func(done, total int64) // nil: nothing is shown
}

// DefaultCosts and DefaultSeeds are what Options have if nothing else is asked for.
const (
	DefaultCosts = "h100-paper"
	DefaultSeeds = 5
)

// studies are the simulated runs behind figures.
type studies struct {
	Options
	paper     claims
	workloads []workload
	facts     Facts
	lock      sync.Mutex
	tables    map[string]costTable
	outcomes  map[string]outcome // by cell and seed
	done      int64
	total     int64
}

// figure is a figure that can be made.
type figure struct {
	name, shows string
	options     string // flags that change its numbers, with a space between
	make        func(*studies) (Figure, error)
}

// figures are all of them, in the paper's order.
func figures() []figure {
	return []figure{
		{"fig1", "idle GPUs by kind, before and after balancing", "workload estimate mesh grain seeds", (*studies).figure1},
		{"fig3", "speedup by kind and model: balancing, total, ceiling and the paper's", "workload estimate mesh grain seeds", (*studies).figure3},
		{"fig3-throughput", "throughput of all balancers by kind and model", "workload estimate mesh grain seeds", (*studies).figure3Throughput},
		{"fig3-cases", "the same speedups under other workloads", "workload estimate mesh grain seeds", (*studies).figure3Cases},
		{"fig4", "packing: throughput on 8, 6, 4 and 2 GPUs, GPUs over steps", "workload estimate grain", (*studies).figure4},
		{"fig4-overhead", "overhead of balancing by part and kind", "workload estimate mesh grain seeds", (*studies).figure4Overhead},
		{"fig5", "a step before layers move, and one after", "workload estimate grain", (*studies).figure5},
		{"fig6", "sparse products against dense ones", "", (*studies).figure6},
		{"fig7", "messages delayed up to four times", "workload estimate mesh grain", (*studies).figure7},
		{"fig8", "weak scaling to 240 nodes", "workload estimate grain", (*studies).figure8},
		{"table1", "vertical scaling, with what runs out of memory", "workload estimate grain", (*studies).table1},
		{"appendix-b", "the paper's bubble ratio and bound on rounds, beside simulations", "", (*studies).appendixB},
	}
}

// Names returns the names of all figures, and what each shows.
func Names() (names, shows []string) {
	for _, f := range figures() {
		names, shows = append(names, f.name), append(shows, f.shows)
	}
	return names, shows
}

// CheckOption refuses a flag that changes no number of some of the figures. The error names the
// figures that the flag changes.
func CheckOption(flag string, names []string) error {
	var without, with []string
	for _, f := range figures() {
		if slices.Contains(strings.Fields(f.options), flag) {
			with = append(with, f.name)
		} else if slices.Contains(names, f.name) {
			without = append(without, f.name)
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("--%s: no effect on %s; figures with it: --only %s", flag, strings.Join(without, ", "), strings.Join(with, ","))
	}
	return nil
}

// Maker makes figures from simulated runs, and simulates each run once.
type Maker struct{ s *studies }

// newStudies returns studies of which no run is simulated yet.
func newStudies(o Options) *studies {
	return &studies{Options: o, tables: map[string]costTable{}, outcomes: map[string]outcome{}}
}

// NewMaker reads workloads and the paper's numbers. Errors are the user's.
func NewMaker(o Options) (Maker, error) {
	s := newStudies(o)
	if err := readTOML(filepath.Join(o.Results, "paper.toml"), &s.paper); err != nil {
		return Maker{}, err
	}
	paths := []string{o.Workload}
	if o.Workload == "" {
		dir := filepath.Join(o.Results, "workloads")
		entries, err := os.ReadDir(dir)
		if err != nil {
			return Maker{}, err
		}
		paths = nil
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	var err error
	if s.workloads, err = readWorkloads(paths); err == nil && o.Workload != "" {
		err = s.workloads[0].checkOptions(o)
	}
	return Maker{s}, err
}

// Make makes the figure of a name.
func (m Maker) Make(name string) (Figure, error) {
	s := m.s
	list := figures()
	mesh := ""
	if s.Mesh[0] > 0 {
		mesh = fmt.Sprintf("%dx%d", s.Mesh[0], s.Mesh[1])
	}
	s.facts = Facts{
		Clock: "sim", Grain: s.Grain, Schedule: zeroBubble, Seeds: s.Seeds, Revision: s.Revision, Mesh: mesh,
		Costs: "estimated for " + s.Costs + " (dynmo profile --estimate)",
		Asked: map[string]string{"estimate": s.Costs, "mesh": mesh, "grain": s.Grain, "seeds": fmt.Sprint(s.Seeds)},
	}
	s.facts.Command = fmt.Sprintf("bin/dynmo figures --remake --only %s --estimate %s --grain %s --seeds %d", name, s.Costs, s.Grain, s.Seeds)
	for _, o := range []struct{ flag, value string }{{"mesh", mesh}, {"workload", s.Workload}} {
		if o.value != "" {
			s.facts.Command += " --" + o.flag + " " + o.value
		}
	}
	s.facts.Command += " -o DIR"
	f, err := list[slices.IndexFunc(list, func(f figure) bool { return f.name == name })].make(s)
	if err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	f.Format, f.Name = format, name
	f.Facts = s.facts
	if err := f.check(name); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// mesh returns the stages and replicas of a workload.
func (s *studies) mesh(w workload) (stages, replicas int) {
	if s.Mesh[0] > 0 {
		return s.Mesh[0], s.Mesh[1]
	}
	return w.Stages, w.Replicas
}

// madeUp returns the run that a workload makes up.
func madeUp(w workload) dynamic.MadeUp {
	return dynamic.MadeUp{Steps: w.Steps, Start: w.From, Every: w.Every}
}

// together calls functions on as many cores as there are. It returns the first error.
func (s *studies) together(tasks []func() error) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range tasks {
		g.Go(f)
	}
	return g.Wait()
}

// cells returns the outcomes of cells, for every seed. A cell without random numbers is simulated
// for one seed, which stands for all.
func (s *studies) cells(list []cell) ([][]outcome, error) {
	all := make([][]outcome, len(list))
	var tasks []func() error
	for i, c := range list {
		n := s.Seeds
		if c.workload.Seeds > 0 {
			n = min(n, c.workload.Seeds)
		}
		all[i] = make([]outcome, n)
		if !c.isRandom() {
			n = 1
		}
		for seed := range n {
			tasks = append(tasks, func() (err error) { all[i][seed], err = s.outcome(c, uint64(seed+1)); return err })
		}
	}
	s.lock.Lock()
	s.total += int64(len(tasks))
	s.lock.Unlock()
	err := s.together(tasks)
	for i, c := range list {
		for seed := 1; seed < len(all[i]) && !c.isRandom(); seed++ {
			all[i][seed] = all[i][0]
		}
	}
	return all, err
}

// outcome returns what a cell comes to with a seed, which it simulates once.
func (s *studies) outcome(c cell, seed uint64) (outcome, error) {
	c.seed = seed
	key := fmt.Sprint(c.workload.Title, c.model, c.of.Name, c.stages, c.replicas, c.head, c.half, c.delay, c.schedule, c.microbatches, seed)
	s.lock.Lock()
	out, known := s.outcomes[key]
	s.lock.Unlock()
	if !known {
		var err error
		if out, err = s.simulate(c); err != nil {
			return out, err
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.outcomes[key] = out
	if s.done++; s.Show != nil {
		s.Show(s.done, s.total)
	}
	return out, nil
}

// studentT are the 97.5 % quantiles of Student's distribution for 1, 2, … degrees of freedom.
var studentT = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

// add appends the mean over seeds of a value, with the ends of its 95 % interval. outcomes are by
// run and seed. With several runs the value is the mean over the runs.
func (v *Series) add(value func(outcome) float64, outcomes ...[]outcome) {
	values := make([]float64, len(outcomes[0]))
	for _, run := range outcomes {
		for seed, o := range run {
			values[seed] += value(o) / float64(len(outcomes))
		}
	}
	n, sum := float64(len(values)), 0.0
	for _, x := range values {
		sum += x
	}
	mean := sum / n
	squares, half := 0.0, 0.0
	for _, x := range values {
		squares += (x - mean) * (x - mean)
	}
	if n > 1 {
		half = studentT[min(int(n)-2, len(studentT)-1)] * math.Sqrt(squares/(n-1)/n)
	}
	v.Values = append(v.Values, mean)
	v.Low, v.High = append(v.Low, mean-half), append(v.High, mean+half)
}

// at appends to the lines of the panel their values at x.
func (p *Panel) at(x float64, values ...float64) {
	for i, v := range values {
		p.Series[i].X, p.Series[i].Values = append(p.Series[i].X, x), append(p.Series[i].Values, v)
	}
}

// group appends a group to the panel. A series without intervals takes its value from the list.
func (p *Panel) group(name string, values ...float64) {
	p.Groups = append(p.Groups, name)
	for i, v := range values {
		p.Series[i].Values = append(p.Series[i].Values, v)
	}
}

// missing is a value that is not known.
var missing = math.NaN()

// orMissing returns a value, missing for 0.
func orMissing(x float64) float64 {
	if x == 0 {
		return missing
	}
	return x
}

// says returns the workloads' assumptions as the facts have them.
func says(list []workload) (lines []string) {
	for _, w := range list {
		lines = append(lines, w.Title+": "+w.main().Source)
	}
	return lines
}
