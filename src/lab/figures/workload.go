package figures

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/files"
	"dynmo/src/lab/roofline"
)

// workload is how models of a kind of dynamism change over a run. It is a file of the folder
// workloads of the results.
type workload struct {
	name                         string // of its file, without the ending; names the paper's numbers
	Kind                         string // of dynamic.Workloads; "none": no model changes but by Case.Changes
	Title                        string
	Place                        int         // among the workloads
	Steps, From, Every, Interval int         // of study.Generate; Interval 0: all changes are simulated
	Stages, Replicas             int         // the paper's mesh
	Costs                        string      // the only cost table that these models have; "": the one that is asked for
	Seeds                        int         // runs that differ; 0: as many as are asked for
	Models                       []modelFile `toml:"model"`
	Cases                        []caseOf    `toml:"case"`
}

// modelFile is a model that the workload runs on.
type modelFile struct {
	Name string
	File string   // settings, from the folder of the workload's file
	Set  []string // table.key=value, on top of these
}

// caseOf is one set of assumptions of a workload.
type caseOf struct {
	Name    string
	Main    bool   // whether the figures of all kinds have this case
	Source  string // where the numbers are from; assumptions begin with ASSUMED
	Head    bool   // the head is always in: it is what is unequal
	From    int    // and Every: instead of the workload's; 0: those
	Every   int
	Set     []string
	Steps   int      // instead of the workload's; all of them are simulated; 0: the workload's
	Changes []change `toml:"change"` // instead of what study.Generate makes up
}

// change sets the seconds of blocks from a step on, as shares of the dense model's: Shares[i]
// holds for the i-th of equal parts of the depth.
type change struct {
	Step   int
	Shares []float64
}

// claims are the paper's numbers, of the file paper.toml of the results.
type claims struct {
	Kinds map[string]struct { // by the names of workloads
		Source, Over                  string  // what the speedup is over
		Speedup, Least, Before, After float64 // 0: the paper has no number
	}
	Repack struct {
		Source     string
		MeanGPUs   float64 `toml:"mean_gpus"`
		LeastShare float64 `toml:"least_share"`
		MostShare  float64 `toml:"most_share"`
	}
	Weak struct {
		Source  string
		Head    bool // the head is always in: it is what is unequal
		Speedup float64
	}
	Spmm struct {
		Source     string
		FasterFrom float64 `toml:"faster_from"`
	}
	Table1 struct{ Rows [][]float64 }
}

// readTOML reads a file whose keys must all be known.
func readTOML(path string, to any) error {
	text, err := files.Read(path, files.Settings)
	if err != nil {
		return err
	}
	return files.TOML(path, text, to)
}

// readWorkloads reads workloads, in their order.
func readWorkloads(paths []string) (list []workload, err error) {
	for _, path := range paths {
		w := workload{name: strings.TrimSuffix(filepath.Base(path), ".toml")}
		if err := readTOML(path, &w); err != nil {
			return nil, err
		}
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i, m := range w.Models {
			if w.Models[i].File = m.File; !filepath.IsAbs(m.File) {
				w.Models[i].File = filepath.Join(filepath.Dir(path), m.File)
			}
		}
		if k := slices.IndexFunc(list, func(x workload) bool { return x.Title == w.Title }); k >= 0 {
			return nil, fmt.Errorf("%s: title: %q, which %s has too", path, w.Title, list[k].name)
		}
		list = append(list, w)
	}
	slices.SortStableFunc(list, func(a, b workload) int { return cmp.Compare(a.Place, b.Place) })
	return list, nil
}

// check refuses a workload that cannot be simulated. The error names the key.
func (w workload) check() error {
	kinds := []string{"none"}
	for _, k := range dynamic.Workloads() {
		kinds = append(kinds, k.Name)
	}
	switch {
	case !slices.Contains(kinds, w.Kind):
		return fmt.Errorf("kind: %q, want one of %s", w.Kind, strings.Join(kinds, ", "))
	case w.Title == "":
		return errors.New("title: none, want the name of the kind in figures")
	case w.Steps < 1 || w.Every < 1 || w.Stages < 1 || w.Replicas < 1:
		return fmt.Errorf("steps, every, stages, replicas: %d, %d, %d, %d, want at least 1", w.Steps, w.Every, w.Stages, w.Replicas)
	case w.From < 0 || w.Interval < 0 || w.Seeds < 0:
		return fmt.Errorf("from, interval, seeds: %d, %d, %d, want at least 0", w.From, w.Interval, w.Seeds)
	case w.Costs != "" && !slices.Contains(roofline.Names(), w.Costs):
		return fmt.Errorf("costs: %q, want one of %s, or none", w.Costs, strings.Join(roofline.Names(), ", "))
	case len(w.Models) == 0 || len(w.Cases) == 0:
		return errors.New("model, case: want one or more of each")
	}
	names, main := map[string]bool{}, 0
	for _, m := range w.Models {
		if m.Name == "" || m.File == "" || names[m.Name] {
			return fmt.Errorf("model: name %q, file %q, want a name that no other model has, and a file of settings", m.Name, m.File)
		}
		names[m.Name] = true
	}
	clear(names)
	for _, c := range w.Cases {
		if c.Main {
			main++
		}
		if c.Name == "" || names[c.Name] {
			return fmt.Errorf("case %q: want a name that no other case has", c.Name)
		}
		names[c.Name] = true
		if c.Source == "" {
			return fmt.Errorf("case %q: no source, want where its numbers are from", c.Name)
		}
		last := -1
		for _, x := range c.Changes {
			if x.Step <= last || x.Step >= w.Steps || len(x.Shares) == 0 || slices.Min(x.Shares) < 0 {
				return fmt.Errorf("case %q: change at step %d to %v, want ascending steps below %d and shares of at least 0", c.Name, x.Step, x.Shares, w.Steps)
			}
			last = x.Step
		}
	}
	if main != 1 {
		return fmt.Errorf("case: %d with main = true, want 1", main)
	}
	return nil
}

// checkOptions refuses options that change nothing if this is the only workload.
func (w workload) checkOptions(o Options) error {
	switch {
	case w.Costs != "" && o.Costs != DefaultCosts && o.Costs != w.Costs:
		return fmt.Errorf("--estimate %s: no effect on %s, which has costs = %q", o.Costs, w.Title, w.Costs)
	case w.Seeds > 0 && o.Seeds != DefaultSeeds && o.Seeds > w.Seeds:
		return fmt.Errorf("--seeds %d: no effect on %s, which has seeds = %d", o.Seeds, w.Title, w.Seeds)
	}
	return nil
}

// CheckWorkload reads the file of a workload, and its models' settings and costs in all cases. It
// returns what the file is about in a line.
func CheckWorkload(path string, o Options) (string, error) {
	list, err := readWorkloads([]string{path})
	if err != nil {
		return "", err
	}
	s, w := newStudies(o), list[0]
	if err := w.checkOptions(o); err != nil {
		return "", err
	}
	stages, replicas := s.mesh(w)
	for _, m := range w.Models {
		for _, of := range w.Cases {
			if _, err := s.prepare(cell{workload: w, model: m, of: of, stages: stages, replicas: replicas, seed: 1}); err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return fmt.Sprintf("%s: %s, kind %s: %d steps on %dx%d GPUs, models %d, cases %d", path, w.Title, w.Kind, w.Steps, stages, replicas, len(w.Models), len(w.Cases)), nil
}

// main returns the case that the figures of all kinds have.
func (w workload) main() caseOf {
	return w.Cases[slices.IndexFunc(w.Cases, func(c caseOf) bool { return c.Main })]
}
