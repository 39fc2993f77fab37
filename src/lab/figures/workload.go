package figures

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"dynmo/src/files"
)

// workload is how models of a kind of dynamism change over a run. It is a file of the folder
// workloads of the results.
type workload struct {
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
	Kinds map[string]struct {
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

// readWorkloads reads all workloads, in their order.
func readWorkloads(results string) (list []workload, err error) {
	dir := filepath.Join(results, "workloads")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var w workload
		path := filepath.Join(dir, e.Name())
		if err := readTOML(path, &w); err != nil {
			return nil, err
		}
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i := range w.Models {
			w.Models[i].File = filepath.Join(dir, w.Models[i].File)
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b workload) int { return cmp.Compare(a.Place, b.Place) })
	return list, nil
}

// check refuses a workload that cannot be simulated. The error names the key.
func (w workload) check() error {
	switch {
	case w.Steps < 1 || w.Every < 1 || w.Stages < 1 || w.Replicas < 1:
		return fmt.Errorf("steps, every, stages, replicas: %d, %d, %d, %d, want at least 1", w.Steps, w.Every, w.Stages, w.Replicas)
	case len(w.Models) == 0 || len(w.Cases) == 0:
		return errors.New("model, case: want one or more of each")
	}
	main := 0
	for _, c := range w.Cases {
		if c.Main {
			main++
		}
		if c.Source == "" {
			return fmt.Errorf("case %q: no source, want where its numbers are from", c.Name)
		}
		for _, x := range c.Changes {
			if x.Step < 0 || x.Step >= w.Steps || len(x.Shares) == 0 || slices.Min(x.Shares) < 0 {
				return fmt.Errorf("case %q: change at step %d to %v, want a step below %d and shares of at least 0", c.Name, x.Step, x.Shares, w.Steps)
			}
		}
	}
	if main != 1 {
		return fmt.Errorf("case: %d with main = true, want 1", main)
	}
	return nil
}

// main returns the case that the figures of all kinds have.
func (w workload) main() caseOf {
	return w.Cases[slices.IndexFunc(w.Cases, func(c caseOf) bool { return c.Main })]
}
