package config

import (
	"math"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// spreads has experts spread over two replicas.
const spreads = "[model]\nfamily = \"llama\"\n[parallel]\nreplicas = 2\nexperts = \"spread\"\n"

// Every error names the place, the value found and the value wanted. The texts are in
// testdata/errors.txt.
func TestErrors(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name, file string
		sets       []string
	}{
		{"typing error in a key", "[model]\nhiden = 3", nil},
		{"key in the wrong table", "[model]\n\nstages = 3", nil},
		{"case of a key", "[model]\nHidden = 3", nil},
		{"typing error in a table", "[trian]\nsteps = 3", nil},
		{"unknown empty table", "[modell]", nil},
		{"key outside any table", "hidden = 3", nil},
		{"value in place of a table", "model = 3", nil},
		{"array of tables", "[[model]]\nhidden = 3", nil},
		{"table in place of a value", "[model.hidden]\nx = 3", nil},
		{"implied table in place of a value", "[run]\n[model.hidden.deep]\nx = 3", nil},
		{"dotted keys", "model.hidden = 0\nmodel.\"heads.x\" = 1", nil},
		{"inline table", "model = {hidden = 0, haeds = 1}", nil},
		{"text for an integer", "[model]\nhidden = \"128\"", nil},
		{"fraction for an integer", "[model]\nhidden = 128.0", nil},
		{"integer for a text", "[run]\nname = 3", nil},
		{"text for a switch", "[model]\ntied = \"yes\"", nil},
		{"text for a number", "[optimizer]\nlr = \"1e-3\"", nil},
		{"not a number", "[optimizer]\nlr = nan\neps = inf", nil},
		{"typing error in a choice", "[balance]\nkind = \"partitoin\"", nil},
		{"typing error in a joined choice", "[dynamic]\nkind = \"prune+freze\"", nil},
		{"negative seed", "[run]\nseed = -1", nil},
		{"text for a list", "[data]\nextensions = \".go\"", nil},
		{"list of numbers", "[data]\nextensions = [\".go\", 3]", nil},
		{"date", "[data]\npath = 2024-01-02", nil},
		{"below the least", "[model]\nblocks = 0", nil},
		{"above the largest", "[model]\nvocab = 99999999999", nil},
		{"vocabulary smaller than a byte", "[model]\nvocab = 255", nil},
		{"excluded bounds", "[optimizer]\nlr = 0\nbeta1 = 1", nil},
		{"none of the choices", "[balance]\nkind = \"greedy\"", nil},
		{"none beside a kind", "[dynamic]\nkind = \"none+prune\"", nil},
		{"sums of what there is not", "[parallel]\nreplicas = 4\n[comm]\nsum = \"float16\"\nsum_group = 0", nil},
		{"more replicas in a group than there are", "[parallel]\nreplicas = 4\n[comm]\nsum_group = 8", nil},
		{"a kind twice", "[dynamic]\nkind = \"prune+prune\"", nil},
		{"a kind that there is not", "[dynamic]\nkind = \"prune+shrink\"", nil},
		{"no tokens in routed blocks", "[mod]\ncapacity = 0", nil},
		{"more than all tokens in routed blocks", "[mod]\ncapacity = 1.5\nthreshold = -0.1\nroute = \"random\"", nil},
		{"experts of GPT-2", "[dynamic]\nkind = \"moe\"", nil},
		{"more choices than experts", "[model]\nfamily = \"llama\"\n[dynamic]\nkind = \"moe\"\n[moe]\ntop = 9", nil},
		{"groups of no experts", "[model]\ngrain = \"expert\"", nil},
		{"uneven groups", "[model]\nfamily = \"llama\"\ngrain = \"expert\"\n[dynamic]\nkind = \"moe\"\n[moe]\ngroups = 3", nil},
		{"layout of groups", "[model]\nfamily = \"llama\"\ngrain = \"expert\"\n[dynamic]\nkind = \"moe+mod\"\n[balance]\nkind = \"layout\"\nlayout = \"Et*6L\"", nil},
		{"spread experts that replicas cannot share", spreads + "[dynamic]\nkind = \"moe\"\n[moe]\nexperts = 9", nil},
		{"spread experts that are pruned", spreads + "[dynamic]\nkind = \"prune+moe\"", nil},
		{"spread experts that freeze", spreads + "[dynamic]\nkind = \"freeze+moe\"\n[freeze]\nwhen = \"plasticity\"", nil},
		{"spread groups", strings.Replace(spreads, "\n", "\ngrain = \"expert\"\n", 1) + "[dynamic]\nkind = \"moe\"", nil},
		{"experts elsewhere", "[parallel]\nexperts = \"scattered\"", nil},
		{"no experts", "[moe]\nexperts = 0\ntop = 0\nbalance = \"tutel\"\ncapacity = -1\nz = -0.1\naux = -2", nil},
		{"layout of halves and routed blocks", "[model]\ngrain = \"half\"\n[dynamic]\nkind = \"mod\"\n[balance]\nkind = \"layout\"\nlayout = \"Ett|ttttL\"", nil},
		{"neither auto nor an integer", "[balance]\nevery = \"often\"", nil},
		{"integer too small beside auto", "[balance]\nevery = 0", nil},
		{"two wrong values", "[model]\nblocks = 0\nheads = -1", nil},
		{"syntax", "[model]\nhidden = = 3", nil},
		{"key given twice", "[model]\nhidden = 3\nhidden = 4", nil},
		{"heads do not divide hidden", "[model]\nheads = 3", nil},
		{"heads do not divide hidden, by --set", "[model]\nhidden = 96", []string{"model.heads=5"}},
		{"more stages than layers", "[model]\nblocks = 2\n[parallel]\nstages = 5", nil},
		{"more stages than half layers", "[model]\nblocks = 2\ngrain = \"half\"", []string{"parallel.stages=7"}},
		{"learning rate that rises", "[optimizer]\nmin_lr = 1", nil},
		{"densities that fall", "[simulate]\ndensity_most = 0.05", nil},
		{"a share beyond all", "[simulate]\nattention = 1\nfrozen = 1.5\nhead = 0", nil},
		{"freezing that no run is long enough for", "[dynamic]\nkind = \"freeze\"\n[freeze]\nstart = 10\nevery = 5\nreference = 5\nwindow = 40\n[train]\nsteps = 200", nil},
		{"references between evaluations", "[dynamic]\nkind = \"freeze\"\n[freeze]\nreference = 70\nthaw = 0.5\n[train]\nsteps = 5000", nil},
		{"one block, which never freezes", "[dynamic]\nkind = \"freeze\"\n[model]\nblocks = 1\n[train]\nsteps = 5000", nil},
		{"windows of nothing", "[freeze]\nwindow = 1\nevery = 0\ntolerance = -1\nwhen = \"soon\"", nil},
		{"more frozen layers than there are", "[dynamic]\nkind = \"freeze\"\n[freeze]\nwhen = \"step\"\nlayers = 9", nil},
		{"sparsity that falls", "[prune]\ninitial = 0.95", nil},
		{"two of four, and more", "[dynamic]\nkind = \"prune\"\n[prune]\nstructure = \"2:4\"", nil},
		{"blocks that do not fit", "[dynamic]\nkind = \"prune\"\n[prune]\nstructure = \"block32\"\n[model]\nhidden = 48\nheads = 2", nil},
		{"fours that do not fit", "[dynamic]\nkind = \"prune\"\n[prune]\nstructure = \"2:4\"\nfinal = 0.5\n[model]\nhidden = 6\nheads = 2", nil},
		{"a structure that there is not", "[prune]\nstructure = \"block16\"", nil},
		{"neither auto nor a sparsity", "[prune]\ncsr_from = \"often\"", nil},
		{"a sparsity beyond all", "[prune]\ncsr_from = 1.5", nil},
		{"buckets no power of two", "[dynamic]\nkind = \"attention\"\n[attention]\nbuckets = 24", nil},
		{"more buckets than tokens", "[model]\nsequence = 64\n[dynamic]\nkind = \"prune+attention\"", []string{"attention.buckets=128"}},
		{"fewer tokens than the usual buckets", "[model]\nsequence = 8\n[dynamic]\nkind = \"attention\"", nil},
		{"no buckets", "[dynamic]\nkind = \"attention\"\n[attention]\nbuckets = 0", nil},
		{"more ranks than anybody has", "[model]\nblocks = 100000\n[parallel]\nstages = 100000\nreplicas = 1000000\nmicrobatches = 1", nil},
		{"schedule without end", "[model]\nblocks = 5000\n[parallel]\nstages = 5000\nmicrobatches = 1000", nil},
		{"bytes beyond integers", "[model]\nblocks = 100000\nhidden = 1048576", nil},
		{"activations beyond integers", "[model]\nsequence = 1048576\n[parallel]\nmicrobatch_size = 1000000\nmicrobatches = 1000000", nil},
		{"latency of minutes", "[comm]\nlatency_seconds = 60", nil},
		{"link slower than a modem", "[comm]\nbandwidth_bytes = 0.5", nil},
		{"link faster than any", "[comm]\nbandwidth_bytes = 1e300", nil},
		{"deadline of years", "[comm]\nstart_seconds = 1e12\nstall_seconds = 0", nil},
		{"regular expression", "[balance]\nregex = \"(\"", nil},
		{"--set without a value", "", []string{"model.hidden"}},
		{"--set without a table", "", []string{"hidden=3"}},
		{"--set of an unknown key", "", []string{"model.hiden=3"}},
		{"--set of a wrong type", "", []string{"model.hidden=wide", "model.tied=1", "train.steps="}},
		{"--set out of range", "", []string{"model.hidden=-1"}},
		{"6,000 lists in each other", "[data]\nextensions = " + strings.Repeat("[", 6000), nil},
		{"6,000 tables in each other", "[" + strings.Repeat("a.", 6000) + "a]", nil},
		{"6,000 lists in each other, by --set", "", []string{"model.hidden=" + strings.Repeat("[", 6000)}},
		{"more keys than settings", strings.Repeat("[[a]]\nb=1\n", 501), nil},
		{"long value", "[data]\nextensions = [" + strings.Repeat("1,", 1000) + "]", nil},
		{"--set of two lines", "", []string{"model.hidden=8\nx=1"}},
	} {
		got, _, err := load("run.toml", []byte(c.file), c.sets)
		if err == nil {
			t.Errorf("%s: accepted as %+v", c.name, got)
			continue
		}
		b.WriteString("# " + c.name + "\n" + err.Error() + "\n")
	}
	expect.Golden(t, "testdata/errors.txt", b.String())
}

func TestMissingFileIsAnError(t *testing.T) {
	_, err := Load("testdata/absent.toml", nil)
	if want := "config: open testdata/absent.toml: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestValidateRefusesWhatNoFileCanHold(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"seed above the integers of TOML": func(c *Config) { c.Run.Seed = math.MaxUint64 },
		"text that is not UTF-8":          func(c *Config) { c.Data.Path = "\xff" },
		"list that is not UTF-8":          func(c *Config) { c.Data.Extensions = []string{"\xff"} },
		"integer with a leading zero":     func(c *Config) { c.Balance.Every = "007" },
		"zero":                            func(c *Config) { *c = Config{} },
	} {
		c := Default()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
