package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestFigures draws one kept figure, and refuses damaged ones. The others are still drawn.
func TestFigures(t *testing.T) {
	results, damaged := "../../../results", t.TempDir()
	expect.OK(t, os.CopyFS(filepath.Join(damaged, "figures"), os.DirFS(filepath.Join(results, "figures"))))
	expect.OK(t, os.WriteFile(filepath.Join(damaged, "figures", "fig5.json"), []byte(`{"format":1,"name":"fig5"`), 0o600))
	expect.OK(t, os.Remove(filepath.Join(damaged, "figures", "fig8.json")))
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string // part of the error
	}{
		{"kept", []string{"--only", "table1"}, exitDone, ""},
		{"an unknown figure", []string{"--only", "fig2"}, exitUsage, "--only fig2: want some of fig1, "},
		{"an unknown GPU", []string{"--estimate", "b200"}, exitUsage, "--estimate b200: want some of a100, "},
		{"an unknown grain", []string{"--grain", "layer"}, exitUsage, "--grain layer: want some of block, half"},
		{"too many seeds", []string{"--seeds", "11"}, exitUsage, "--seeds 11: want 1 to 10"},
		{"no mesh", []string{"--mesh", "24"}, exitUsage, "--mesh 24: want STAGESxREPLICAS"},
		{"other costs", []string{"--only", "table1", "--estimate", "h100"}, exitUsage, `table1: the kept result is of --estimate "h100-paper", not "h100"`},
		{"a mesh that fig5 has not", []string{"--only", "fig5,table1", "--mesh", "4x2"}, exitUsage, "--mesh: no effect on fig5, table1; figures with it: --only fig1,fig3,"},
		{"the same, simulated", []string{"--only", "fig5", "--mesh", "4x2", "--remake"}, exitUsage, "--mesh: no effect on fig5; figures with it: --only fig1,fig3,"},
		{"seeds of what was measured", []string{"--only", "fig6", "--seeds", "2"}, exitUsage, "--seeds: no effect on fig6; "},
		{"options as in the kept command", []string{"--only", "table1", "--seeds", "1", "--grain", "block"}, exitDone, ""},
		{"a command of no runs", []string{"--made-by", "dynmo train"}, exitUsage, "--made-by: no effect without --collect"},
		{"damaged", []string{"--only", "fig5,table1", "--results", damaged}, exitUsage, "fig5.json: unexpected end"},
		{"missing", []string{"--only", "fig8,table1", "--results", damaged}, exitUsage, "fig8.json: no result is kept, --remake simulates one"},
		{"kept without a study", []string{"--keep"}, exitUsage, "--keep: no effect without --remake"},
		{"a workload of no study", []string{"--workload", "prune.toml"}, exitUsage, "--workload: no effect without --remake"},
		{"a workload to keep", []string{"--workload", "prune.toml", "--remake", "--keep"}, exitUsage, "--keep, --workload: the kept study has all workloads"},
		{"a workload of products", []string{"--workload", "prune.toml", "--remake", "--only", "fig6"}, exitUsage, "--workload: no effect on fig6; "},
		{"no results", []string{"--results", "absent"}, exitUsage, "--results absent: no such folder"},
		{"no results to simulate", []string{"--results", "absent", "--remake", "--only", "fig5"}, exitUsage, "--results absent: no such folder"},
		{"no workloads", []string{"--only", "fig8", "--results", damaged, "--remake"}, exitUsage, "paper.toml: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			e := says(append([]string{"figures", "-o", dir, "--results", results}, c.args...)...)
			if e.status != c.status || !strings.Contains(e.stderr, c.want) {
				t.Errorf("status %d, want %d; told %q, want %q", e.status, c.status, e.stderr, c.want)
			}
			if drawn := strings.Contains(e.stdout, "table1: "); drawn {
				for _, ending := range []string{"svg", "png", "pdf", "md", "csv"} {
					if read(t, filepath.Join(dir, "table1."+ending)) == "" {
						t.Errorf("table1.%s is empty", ending)
					}
				}
			} else if strings.Contains("kept damaged missing options as in the kept command", c.name) {
				t.Error("table1 is not drawn")
			}
		})
	}
}

// TestFiguresRemake: a study is remade from a copied folder of results, in any working directory.
// Its numbers do not replace the copy's unless --keep is given.
func TestFiguresRemake(t *testing.T) {
	top := t.TempDir()
	expect.OK(t, os.CopyFS(filepath.Join(top, "copy"), os.DirFS("../../../results")))
	t.Chdir(top)
	kept := filepath.Join("copy", "figures", "fig5.json")
	before := read(t, kept)
	remake := []string{"figures", "-o", "out", "--results", "copy", "--only", "fig5", "--remake"}
	if text := said(t, append(remake, "--grain", "half")...); !strings.HasSuffix(text, "numbers: "+filepath.Join(top, "out-remade", "figures")+"\n") {
		t.Errorf("said %q", text)
	}
	if read(t, kept) != before {
		t.Error("the kept numbers are replaced without --keep")
	}
	half := read(t, "out/fig5.csv")
	said(t, "figures", "-o", "again", "--results", "out-remade", "--only", "fig5")
	if read(t, "again/fig5.csv") != half {
		t.Error("the remade numbers are drawn otherwise")
	}
	expect.OK(t, os.Rename("out-remade", "old"))
	expect.OK(t, os.Symlink("copy", "out-remade"))
	says(remake...).refused(t, exitUsage, "--results copy: -o out would write over it, want another -o, or --keep")
	expect.OK(t, os.Remove("out-remade"))
	said(t, append(remake, "--grain", "half", "--keep")...)
	if read(t, kept) == before {
		t.Error("--keep has left the kept numbers")
	}
	if _, err := os.Stat("out-remade"); err == nil {
		t.Error("--keep has written a second folder")
	}
	said(t, append(remake, "--keep")...)
	numbers := func(text string) string { return text[strings.Index(text, `"panels"`):] }
	if got := read(t, kept); numbers(got) != numbers(before) {
		t.Error("the numbers are not those that the study has kept")
	}
}

// TestFiguresCollectRefuses: a flag that --collect does not use is refused by name.
func TestFiguresCollectRefuses(t *testing.T) {
	for _, flags := range [][]string{{"--output", "out"}, {"--only", "fig5"}, {"--remake"}, {"--keep"}, {"--estimate", "h100"}, {"--mesh", "4x2"}, {"--grain", "half"}, {"--seeds", "2"}} {
		e := says(append([]string{"figures", "--collect", "fig3-tiny", "run"}, flags...)...)
		e.refused(t, exitUsage, flags[0]+": no effect with --collect")
	}
}

// TestFiguresCollectsExecutedRunsOnly: --collect refuses a simulated run by name, on whatever costs, and
// keeps nothing of it.
func TestFiguresCollectsExecutedRunsOnly(t *testing.T) {
	workbench(t, "")
	if e := says("train", "run.toml", "--run-dir", "real"); e.status != exitDone {
		t.Fatal(e.stderr)
	}
	said(t, "simulate", "run.toml", "--costs", "real/costs.jsonl", "--run-dir", "made-up")
	collect := []string{"figures", "--results", ".", "--collect", "fig3-mine"}
	says(append(collect, "made-up")...).refused(t, exitUsage, "made-up: a simulated run (clock=sim), want one that dynmo train executed")
	if _, err := os.Stat("executed/fig3-mine.json"); err == nil {
		t.Error("a simulated run is kept as executed")
	}
	says(append(collect, "real", "made-up")...).refused(t, exitUsage, "made-up: a simulated run (clock=sim)")
	if kept := read(t, "executed/fig3-mine.json"); !strings.Contains(kept, `"run":"real"`) || strings.Contains(kept, "made-up") {
		t.Errorf("kept %s", kept)
	}
}

// TestFiguresCheck: the example of the help, as it stands there, is a sound workload. A wrong one is
// named, and the others are checked.
func TestFiguresCheck(t *testing.T) {
	_, rest, _ := strings.Cut(page("workloads"), "```toml\n")
	example, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("the help has no example")
	}
	model, err := os.ReadFile("../../../jobs/gpu-24l.toml")
	expect.OK(t, err)
	t.Chdir(t.TempDir())
	expect.OK(t, os.WriteFile("gpu-24l.toml", model, 0o600))
	expect.OK(t, os.WriteFile("mine.toml", []byte(example), 0o600))
	expect.OK(t, os.WriteFile("wrong.toml", []byte(strings.Replace(example, "steps =", "stepz =", 1)), 0o600))
	e := says("figures", "--check", "wrong.toml", "mine.toml")
	if e.status != exitUsage || e.stdout != "mine.toml: Mine, kind none: 1000 steps on 8x4 GPUs, models 1, cases 1\n" ||
		e.stderr != "dynmo: wrong.toml:3: stepz: unknown key; the nearest is steps\n" {
		t.Errorf("status %d, said %q and %q", e.status, e.stdout, e.stderr)
	}
	says("figures", "--check").refused(t, exitUsage, "--check: want files of workloads behind it")
	says("figures", "--check", "mine.toml", "--seeds", "2").refused(t, exitUsage, "--seeds: no effect with --check")
	says("figures", "mine.toml").refused(t, exitUsage, "mine.toml: run directories stand behind --collect NAME, workloads behind --check")
}
