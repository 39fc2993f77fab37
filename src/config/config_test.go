package config

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestDefaultsAreValidAndDocumented(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, s := range settings(&c) {
		if s.table == "" || s.key == "" || s.tag.Get("doc") == "" || s.tableTag.Get("doc") == "" {
			t.Errorf("%s: a tag is missing", s.name())
		}
		for _, tag := range []reflect.StructTag{s.tag, s.tableTag} {
			if when, ok := tag.Lookup("when"); ok {
				for one := range strings.SplitSeq(when, " or ") {
					name, _, _ := strings.Cut(one, "=")
					if _, known := find(settings(&c), name); !known {
						t.Errorf("%s: when names no setting: %s", s.name(), one)
					}
				}
			}
		}
	}
	// Comments repeat the tags: those of the first table show how.
	first, others, _ := strings.Cut(c.TOML(), "\n\n")
	expect.Golden(t, "testdata/default.toml", first+"\n\n"+regexp.MustCompile(`(?m)^# .*\n`).ReplaceAllString(others, ""))
}

func TestResolvedFileLoadsToAnEqualConfig(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"default":      func(*Config) {},
		"integer text": func(c *Config) { c.Balance.Every = "17" },
		"no list":      func(c *Config) { c.Data.Extensions = nil },
		"long list":    func(c *Config) { c.Data.Extensions = []string{".go", "a,b", `"`} },
		"hard text":    func(c *Config) { c.Run.Name = "a \"b\" \\ \t\n\x00 'ü' # [x]" },
		"large seed":   func(c *Config) { c.Run.Seed = math.MaxInt64 },
		"third":        func(c *Config) { c.Optimizer.LR = 1.0 / 3 },
		"tiny number":  func(c *Config) { c.Optimizer.Eps = math.SmallestNonzeroFloat64 },
		"huge number":  func(c *Config) { c.Optimizer.LR = math.MaxFloat64 },
		"share":        func(c *Config) { c.Data.Validation = "0.05" },
		"tiny share":   func(c *Config) { c.Data.Validation = "1e-07" },
		"path":         func(c *Config) { c.Data.Validation = "./0.05" },
	} {
		t.Run(name, func(t *testing.T) {
			want := Default()
			change(&want)
			got, _, err := load("resolved.toml", []byte(want.TOML()), nil)
			expect.OK(t, err)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestSetsOverrideTheFileInOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.toml")
	text := "[model]\nhidden = 64\nblocks = 2\n[balance]\nevery = 5\n[optimizer]\nlr = 1\n"
	expect.OK(t, os.WriteFile(file, []byte(text), 0o600))
	got, err := Load(file, []string{"model.blocks=3", "model.blocks = 4", "data.extensions=.md,.txt",
		`run.name=two words`, `data.path="quoted"`, "train.hash=true", "balance.kind=diffusion", "comm.bandwidth_bytes=2e9"})
	expect.OK(t, err)
	want := Default()
	want.Model.Hidden, want.Model.Blocks = 64, 4
	want.Balance.Every, want.Balance.Kind = "5", "diffusion"
	want.Optimizer.LR = 1
	want.Data.Extensions, want.Data.Path = []string{".md", ".txt"}, "quoted"
	want.Run.Name, want.Train.Hash, want.Comm.BandwidthBytes = "two words", true, 2e9
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestTextThatMayBeANumber: a share is written as a number or a text, and read back as
// the same; what does not begin as a number is a path.
func TestTextThatMayBeANumber(t *testing.T) {
	for text, want := range map[string]string{
		"validation = 0.05": "0.05", "validation = .050": "", `validation = ".050"`: "0.05", "validation = 5e-2": "0.05",
		`validation = "text/0.05"`: "text/0.05", `validation = "nan"`: "nan", `validation = "-"`: "-",
	} {
		got, _, err := load("run.toml", []byte("[data]\n"+text), nil)
		if want == "" {
			if err == nil {
				t.Errorf("%s: no error", text)
			}
			continue
		}
		expect.OK(t, err)
		share := 0.0
		if want == "0.05" {
			share = 0.05
		}
		if got.Data.Validation != want || got.Data.HeldOut() != share {
			t.Errorf("%s: %q, share %v, want %q and %v", text, got.Data.Validation, got.Data.HeldOut(), want, share)
		}
	}
	for _, set := range []string{"0", "1", "1.5", "-0.1", "2024", "1e-400"} {
		_, _, err := load("", nil, []string{"data.validation=" + set})
		if err == nil || !strings.Contains(err.Error(), "wanted a UTF-8 text or a number above 0 and below 1") {
			t.Errorf("data.validation=%s: %v", set, err)
		}
	}
	c, _, err := load("", nil, []string{"train.validate_every=5", "train.validate_sequences=8"})
	expect.OK(t, err)
	if got := strings.Join(c.Ignored(), "\n"); !strings.Contains(got, `train.validate_every = 5 has no effect while data.validation = ""`) {
		t.Errorf("ignored: %s", got)
	}
	c.Data.Validation = "x"
	if got := c.Ignored(); got != nil {
		t.Errorf("ignored: %s", got)
	}
}

func TestIgnoredNamesSettingsWithoutEffect(t *testing.T) {
	c, _, err := load("", nil, []string{"balance.regex=mlp", "balance.gamma=0.5", "prune.final=0.8", "dynamic.kind=none",
		"run.clock=wall", "comm.latency_seconds=1", "simulate.head=2"})
	expect.OK(t, err)
	expect.Golden(t, "testdata/ignored.txt", strings.Join(c.Ignored(), "\n")+"\n")

	c = Default()
	c.Balance.Kind, c.Balance.Regex, c.Run.Clock = "regex", "mlp", "wall"
	c.Dynamic.Kind, c.Train.Steps = "prune", 3001
	c.Assign("prune.final", 0.8)
	if got := c.Ignored(); got != nil {
		t.Errorf("settings that count are called ignored: %q", got)
	}
}

// TestIgnoredInAChain: what depends on a setting that has no effect has none either.
func TestIgnoredInAChain(t *testing.T) {
	c := Default()
	c.Device.Kind, c.Device.Threads = "cuda", 2
	if got, want := c.Ignored(), []string{`device.threads = 2 has no effect while device.kind = "cuda"`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCostless: a kind of dynamism that changes no layer's cost is said before training.
func TestCostless(t *testing.T) {
	for _, c := range []struct{ kind, sets, want string }{
		{"prune", "", ""},
		{"prune", "prune.csr_from=1", `prune changes no layer's cost: pruned weights stay masked dense on device.kind = "cpu". A prune.csr_from below 1 stores them as CSR`},
		{"prune", "prune.structure=2:4 prune.final=0.5", `prune changes no layer's cost: prune.structure = "2:4" keeps pruned weights masked dense`},
		{"prune", "prune.final=0", "prune changes no layer's cost: prune.initial and prune.final = 0 remove no weight"},
		{"freeze", "freeze.start=0", ""},
		{"freeze", "freeze.when=step freeze.step=10", ""},
		{"mod", "mod.capacity=1", "mod changes no layer's cost: mod.capacity = 1 takes every token into the routed blocks"},
		{"mod", "mod.capacity=0.5", ""},
		{"moe", "model.family=llama", ""},
		{"moe", "model.family=llama moe.experts=1 moe.top=1", "moe changes no layer's cost: every token goes to each of the 1 experts"},
		{"prune+moe", "model.family=llama prune.csr_from=0.5 moe.experts=2 moe.top=2", "moe changes no layer's cost: every token goes to each of the 2 experts"},
	} {
		loaded, _, err := load("", nil, append(strings.Fields(c.sets), "dynamic.kind="+c.kind, "prune.start=0", "train.steps=1000"))
		if err != nil {
			t.Errorf("%s %s: %v", c.kind, c.sets, err)
			continue
		}
		said := slices.DeleteFunc(loaded.Ignored(), func(line string) bool { return !strings.Contains(line, "changes no layer's cost") })
		if got := strings.Join(said, "\n"); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kind, c.sets, got, c.want)
		}
	}
}

// TestJoinedKinds: the settings of every kind that is named count.
func TestJoinedKinds(t *testing.T) {
	for kind, silent := range map[string]int{"none": 3, "prune": 2, "freeze": 1, "prune+freeze": 0, "freeze+prune": 0} {
		c := Default()
		c.Dynamic.Kind = kind
		c.Assign("prune.start", 1, "freeze.when", "step", "freeze.step", 2)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if got := c.Ignored(); len(got) != silent {
			t.Errorf("%s: %q have no effect, want %d", kind, got, silent)
		}
		if has := c.Dynamic.Has("freeze"); has != (kind != "none" && kind != "prune") {
			t.Errorf("%s has freeze: %v", kind, has)
		}
	}
}

// TestStructure: decisions of a kind during a run are not part of the structure.
func TestStructure(t *testing.T) {
	for kinds, want := range map[string]string{"none": "none", "prune": "none", "exit": "exit", "prune+exit": "exit", "mod+freeze+exit": "mod+exit", "attention": "attention"} {
		if got := (Dynamic{Kind: kinds}).Structure(); got != want {
			t.Errorf("%s: %s, want %s", kinds, got, want)
		}
	}
}
