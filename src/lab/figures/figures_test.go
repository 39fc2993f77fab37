package figures

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	_ "dynmo/src/kind"
)

const kept = "../../../results"

// sample is a small figure with every form of panel.
func sample() Figure {
	one := Series{Name: "one", Values: Values{1, math.NaN()}, Low: Values{0.9, math.NaN()}, High: Values{1.1, math.NaN()}}
	paper, most := Series{Name: "paper", Role: rolePaper, Values: Values{2, 3}}, Series{Name: "most", Role: roleCeiling, Values: Values{1.5, 1.5}}
	return Figure{
		Format: format, Name: "sample", Title: "A sample", Notes: []string{"It shows nothing."},
		Facts: Facts{Clock: "sim", Costs: "estimated", Seeds: 3, Asked: map[string]string{"grain": "block"}},
		Panels: []Panel{
			{Title: "bars", Form: formBars, X: "of", Y: "what", Groups: []string{"a", "b, c"}, Series: []Series{one, paper, most}},
			{Title: "lines", Form: formLines, X: "x", Y: "y", Log: "xy", Series: []Series{{Name: "up", X: Values{1, 10}, Values: Values{1, 2}}, {Name: "other", X: Values{10, 100}, Values: Values{1, 2}}}},
			{Title: "spans", Form: formTimeline, X: "ms", Y: "stage", Series: []Series{{Name: "F", X: Values{0, 1}, Values: Values{1, 2}, Rows: []int{0, 1}}}},
			{Title: "cells", Form: formCells, X: "of", Y: "what", Groups: []string{"a", "b"}, Series: []Series{one}},
		},
	}
}

// TestSave: a figure that is kept and read again gives the same files, all of them.
func TestSave(t *testing.T) {
	results, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	expect.OK(t, sample().Write(results))
	again, err := Read(results, results, "sample")
	expect.OK(t, err)
	expect.OK(t, sample().Save(first))
	expect.OK(t, again.Save(second))
	for _, ending := range endings {
		a, err := os.ReadFile(filepath.Join(first, "sample."+ending))
		expect.OK(t, err)
		b, err := os.ReadFile(filepath.Join(second, "sample."+ending))
		expect.OK(t, err)
		if len(a) == 0 || string(a) != string(b) {
			t.Errorf("sample.%s: %d bytes, and %d others from the kept result", ending, len(a), len(b))
		}
	}
	expect.Golden(t, "testdata/sample.md", again.markdown())
	expect.Golden(t, "testdata/sample.csv", again.csv())
}

func TestReadRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Figure)
		want   string
	}{
		{"of another name", func(f *Figure) { f.Name = "fig1" }, `name: "fig1", want "sample"`},
		{"of another format", func(f *Figure) { f.Format = 7 }, "format: 7, want 1"},
		{"half finished", func(f *Figure) { f.Panels = nil }, "panels: none"},
		{"without a clock", func(f *Figure) { f.Facts.Clock = "" }, "no clock"},
		{"too few values", func(f *Figure) { f.Panels[0].Series[1].Values = Values{1} }, "panels[0].series[1]: 1 values"},
		{"too few rows", func(f *Figure) { f.Panels[2].Series[0].Rows = nil }, "panels[2].series[0].rows: 0, want 2"},
		{"an unknown form", func(f *Figure) { f.Panels[3].Form = "pie" }, `panels[3].form: "pie"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			results, f := t.TempDir(), sample()
			test.change(&f)
			expect.OK(t, f.Write(results))
			expect.OK(t, os.Rename(filepath.Join(results, "figures", f.Name+".json"), filepath.Join(results, "figures", "renamed")))
			expect.OK(t, os.Rename(filepath.Join(results, "figures", "renamed"), filepath.Join(results, "figures", "sample.json")))
			if _, err := Read(results, results, "sample"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := Read(t.TempDir(), kept, "sample"); err == nil || !strings.Contains(err.Error(), "no result is kept, --remake") {
		t.Errorf("error %v", err)
	}
	if err := sample().Matches("grain", "half"); err == nil || !strings.Contains(err.Error(), `of --grain "block", not "half"`) {
		t.Errorf("error %v", err)
	}
}

// TestKept: every figure is kept, and can be drawn.
func TestKept(t *testing.T) {
	names, shows := Names()
	for i, name := range names {
		f, err := Read(kept, kept, name)
		expect.OK(t, err)
		if f.markdown() == "" || shows[i] == "" {
			t.Errorf("%s: nothing to draw", name)
		}
	}
}

// TestWorkloads: the files of workloads are sound, and their models' settings load.
func TestWorkloads(t *testing.T) {
	m, err := NewMaker(Options{Results: kept, Costs: "h100-paper", Grain: "block", Seeds: 1})
	expect.OK(t, err)
	for _, w := range m.s.workloads {
		if m.s.paper.Kinds[w.name].Source == "" {
			t.Errorf("%s: paper.toml has no source of its numbers", w.Kind)
		}
		for _, model := range w.Models {
			for _, c := range w.Cases {
				_, err := config.Load(model.File, append(model.Set, c.Set...))
				expect.OK(t, err)
			}
		}
	}
}

func TestWorkloadsAreRefused(t *testing.T) {
	for _, test := range []struct{ name, from, to, want string }{
		{"an unknown key", "steps = 200", "stepz = 200", "tiny.toml:4: stepz: unknown key; the nearest is steps"},
		{"a second spelling", "steps = 200", "steps = 200\nSteps = 100", "tiny.toml:5: Steps: unknown key; the nearest is steps"},
		{"an unknown kind", `kind = "none"`, `kind = "pruning"`, `kind: "pruning", want one of none, prune, `},
		{"no title", `title = "Tiny"`, "", "title: none"},
		{"unknown costs", "place = 1", `costs = "b200"`, `costs: "b200", want one of a100, `},
		{"a negative seed", "place = 1", "seeds = -1", "from, interval, seeds: 0, 0, -1, want at least 0"},
		{"a model without a file", `file = "../../model.toml"`, "", `model: name "8 blocks", file ""`},
		{"changes that do not ascend", "step = 10", "step = 10\nshares = [1.0]\n[[case.change]]\nstep = 10", "change at step 10"},
		{"no steps", "steps = 200", "steps = 0", "want at least 1"},
		{"no main case", "main = true", "", "case: 0 with main = true, want 1"},
		{"no source", `source = "made up"`, "", `case "halves": no source`},
		{"a change behind the end", "step = 10", "step = 300", "change at step 300"},
		{"no model", "[[model]]", "[[case]]", "unknown key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewMaker(Options{Results: tiny(t, strings.NewReplacer(test.from, test.to))})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// tiny makes a folder of results with one workload, changed by a replacer.
func tiny(t *testing.T, change *strings.Replacer) string {
	top := t.TempDir()
	results := filepath.Join(top, "results")
	expect.OK(t, os.MkdirAll(filepath.Join(results, "workloads"), 0o777))
	paper, err := os.ReadFile(filepath.Join(kept, "paper.toml"))
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(filepath.Join(results, "paper.toml"), paper, 0o666))
	settings := "[model]\nblocks = 8\nhidden = 1024\nheads = 16\nsequence = 2048\n[device]\nkind = \"cuda\"\n"
	expect.OK(t, os.WriteFile(filepath.Join(top, "model.toml"), []byte(settings), 0o666))
	text := change.Replace(`kind = "none"
title = "Tiny"
place = 1
steps = 200
from = 0
every = 1
stages = 2
replicas = 2

[[case]]
name = "halves"
main = true
source = "made up"
[[case.change]]
step = 10
shares = [1.0, 0.25]

[[model]]
name = "8 blocks"
file = "../../model.toml"
set = ["model.vocab=1024"]
`)
	expect.OK(t, os.WriteFile(filepath.Join(results, "workloads", "tiny.toml"), []byte(text), 0o666))
	return results
}

// TestMake: a simulated figure is the same each time. Where the second half of the blocks costs a
// quarter, the bottleneck of eight blocks on two stages is 4 blocks before and 3 after.
// Filling the pipeline takes some of that gain.
func TestMake(t *testing.T) {
	o := Options{Results: tiny(t, strings.NewReplacer("step = 10", "step = 0")), Costs: "h100-paper", Grain: "block", Seeds: 2}
	var texts []string
	for range 2 {
		m, err := NewMaker(o)
		expect.OK(t, err)
		f, err := m.Make("fig3")
		expect.OK(t, err)
		texts = append(texts, f.csv())
		gain := f.Panels[0].Series[0].Values[0]
		if most := f.Panels[0].Series[4].Values[0]; gain < 1.2 || gain > most+1e-9 {
			t.Errorf("balancing gains %v, want at least 1.2 and at most %v", gain, most)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("two runs differ:\n%s\n%s", texts[0], texts[1])
	}
}

// TestOwnWorkload: a workload that the paper has no number for is checked and made alone, without
// marks of the paper. A figure of a kind that it is not is refused.
func TestOwnWorkload(t *testing.T) {
	results := tiny(t, strings.NewReplacer())
	own := filepath.Join(t.TempDir(), "own.toml")
	text, err := os.ReadFile(filepath.Join(results, "workloads", "tiny.toml"))
	expect.OK(t, err)
	model := filepath.Join(results, "..", "model.toml")
	expect.OK(t, os.WriteFile(own, []byte(strings.ReplaceAll(string(text), "../../model.toml", model)), 0o666))
	o := Options{Results: kept, Workload: own, Costs: DefaultCosts, Grain: "block", Seeds: 1}
	line, err := CheckWorkload(own, o)
	expect.OK(t, err)
	if line != own+": Tiny, kind none: 200 steps on 2x2 GPUs, models 1, cases 1" {
		t.Errorf("checked: %s", line)
	}
	m, err := NewMaker(o)
	expect.OK(t, err)
	for _, name := range []string{"fig1", "fig3", "fig3-cases"} {
		f, err := m.Make(name)
		expect.OK(t, err)
		if len(f.Panels) != 1 || !strings.Contains(f.Facts.Command, "--workload "+own) {
			t.Errorf("%s: %d panels, command %s", name, len(f.Panels), f.Facts.Command)
		}
		if text := f.csv(); strings.Contains(text, ",paper,") || strings.Contains(f.Panels[0].Title, "diamond") {
			t.Errorf("%s has marks of the paper:\n%s", name, text)
		}
	}
	if _, err := m.Make("fig5"); err == nil || err.Error() != `fig5: no workload has kind = "prune", which this figure is of` {
		t.Errorf("fig5: %v", err)
	}
	expect.OK(t, os.Remove(model))
	if _, err := CheckWorkload(own, o); err == nil || !strings.Contains(err.Error(), own+": Tiny, 8 blocks, halves: ") || !strings.Contains(err.Error(), "model.toml") {
		t.Errorf("a model that is not there: %v", err)
	}
}

// TestWorkloadIgnoresOptions: options that a workload's own keys override are refused.
func TestWorkloadIgnoresOptions(t *testing.T) {
	for _, test := range []struct {
		name string
		o    Options
		want string
	}{
		{"moe", Options{Costs: "a100", Seeds: DefaultSeeds}, `--estimate a100: no effect on Mixture of experts, which has costs = "h100"`},
		{"prune", Options{Costs: DefaultCosts, Seeds: 3}, "--seeds 3: no effect on Pruning, which has seeds = 1"},
	} {
		test.o.Results, test.o.Workload = kept, filepath.Join(kept, "workloads", test.name+".toml")
		if _, err := NewMaker(test.o); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// TestSweeps: every run of the scripts of the scaling study has settings that load.
func TestSweeps(t *testing.T) {
	sweeps, err := filepath.Glob("../../../jobs/scaling/*.sweep")
	expect.OK(t, err)
	for _, path := range sweeps {
		text, err := os.ReadFile(path)
		expect.OK(t, err)
		for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
			sets := strings.Split(strings.TrimPrefix(line, "--set "), " --set ")
			if _, err := config.Load("../../../jobs/gpu-24l.toml", sets); err != nil {
				t.Errorf("%s: %s: %v", path, line, err)
			}
		}
	}
	if len(sweeps) == 0 {
		t.Error("no sweeps")
	}
}

// TestModels: the models of the workloads are those of the settings that train. They are copies, so
// that a copied folder of results has all that --remake reads.
func TestModels(t *testing.T) {
	models, err := filepath.Glob(filepath.Join(kept, "models", "*.toml"))
	expect.OK(t, err)
	if len(models) != 3 {
		t.Fatalf("models: %q, want 3", models)
	}
	for _, path := range models {
		jobs := filepath.Join(kept, "..", "jobs", filepath.Base(path))
		if _, err := os.Stat(jobs); err != nil {
			jobs = filepath.Join(kept, "..", "jobs", "paper", filepath.Base(path))
		}
		got, err := os.ReadFile(path)
		expect.OK(t, err)
		want, err := os.ReadFile(jobs)
		expect.OK(t, err)
		if string(got) != string(want) {
			t.Errorf("%s differs from %s: copy one over the other", path, jobs)
		}
	}
}

// TestMeshes: the caption names every workload once, beside its own mesh.
func TestMeshes(t *testing.T) {
	s := new(studies)
	for _, c := range []struct {
		list []workload
		want string
	}{
		{[]workload{{Title: "A", Stages: 24, Replicas: 30}}, "A on 24x30"},
		{[]workload{{Title: "E", Stages: 16, Replicas: 8}, {Title: "A", Stages: 24, Replicas: 30}, {Title: "B", Stages: 24, Replicas: 30}, {Title: "D", Stages: 16, Replicas: 8}, {Title: "C", Stages: 24, Replicas: 30}}, "E and D on 16x8; A, B and C on 24x30"},
	} {
		if got := s.meshes(c.list); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
