package main

import (
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// configs has the configurations that package modelcost is tested with.
const configs = "../../lab/modelcost/testdata/"

// TestEstimatedCosts: a model that nobody has measured gets a layout.
func TestEstimatedCosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "costs.json")
	text := said(t, "costs", "--config-json", configs+"deepseek-v3.json", "--estimate", "h100", "--sequence", "4096", "--expert-parallel", "64", "-o", file)
	if lines := strings.Split(text, "\n"); len(lines) < 4 || !strings.Contains(lines[0], "forward ms") || strings.Fields(lines[1])[0] != "embedding" || !strings.HasSuffix(strings.TrimSpace(lines[1]), "-        -") {
		t.Errorf("%s", text)
	}
	series, _, err := record.OpenSeries(file, 0)
	expect.OK(t, err)
	if got := series[0].Source(); got != "estimated for h100" || len(series[0].Layers) != 64 {
		t.Errorf("%d layers, %s", len(series[0].Layers), got)
	}
	a := decoded[layoutAnswer](t, "layout", "--costs", file, "--stages", "8", "--microbatches", "16", "--for", "megatron")
	if a.Costs != "estimated for h100" || len(a.Best) == 0 || !strings.Contains(a.Text, "m") {
		t.Errorf("%+v", a)
	}
}

func TestEstimatedCostsAreRefused(t *testing.T) {
	other := filepath.Join(t.TempDir(), "config.json")
	write(t, other, `{"model_type": "jamba"}`)
	for _, c := range []struct {
		name string
		args []string
		want string // part of the error
	}{
		{"no GPU", nil, "--config-json: nothing is measured, want --estimate"},
		{"unknown GPU", []string{"--estimate", "b200"}, `--estimate: no rates of a GPU "b200"`},
		{"the paper's GPU", []string{"--estimate", "h100-paper"}, "--estimate: h100-paper has products of float32"},
		{"no tokens", []string{"--estimate", "h100", "--sequence", "0"}, "sequence 0"},
		{"unknown model", []string{"--estimate", "h100", "--config-json", other}, `model_type "jamba": no rule for its layers, want one of llama`},
		{"no file", []string{"--estimate", "h100", "--config-json", other + "x"}, "no such file"},
		{"a log's flag", []string{"--estimate", "h100", "--layout", "EtL"}, "--layout: has no effect beside --config-json"},
		{"ranks", []string{"--estimate", "h100", "--tensor-parallel", "3"}, "num_attention_heads: 32 on 3 ranks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"costs", "--config-json", configs + "llama-3-8b.json", "--sequence", "4096", "-o", "-"}, c.args...)
			says(args...).refused(t, exitUsage, c.want)
		})
	}
	if e := says("costs", "--config-json", configs+"llama-3-8b.json", "--estimate", "h100", "--sequence", "0", "--tensor-parallel", "0", "-o", "-"); strings.Count(e.stderr, "\n") != 1 {
		t.Errorf("two wrong numbers: %q, want one line", e.stderr)
	}
	says("costs", "--csv", other, "--sequence", "8", "-o", "-").refused(t, exitUsage, "--sequence: has no effect without --config-json")
}
