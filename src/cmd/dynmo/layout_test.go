package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/lab/layouts"
)

// costsFile writes costs: an embedding, blocks of one cost and a head, in seconds of forward and backward.
func costsFile(t *testing.T, blocks int, embedding, block, head [2]float64) string {
	t.Helper()
	var list []string
	add := func(name string, x [2]float64) {
		list = append(list, fmt.Sprintf(`{"name":%q,"forward":%v,"backward_input":%v,"backward_weight":%v}`, name, x[0], x[1]/2, x[1]/2))
	}
	add("embedding", embedding)
	for i := range blocks {
		add(fmt.Sprintf("block.%d", i), block)
	}
	add("head", head)
	path := filepath.Join(t.TempDir(), "costs.json")
	expect.OK(t, os.WriteFile(path, []byte(`{"step":0,"steps":0,"clock":"wall","layers":[`+strings.Join(list, ",\n")+"]}\n"), 0o666))
	return path
}

// TestLayout: the answers for Megatron-LM's users of a model that was checked by hand.
func TestLayout(t *testing.T) {
	costs := costsFile(t, 32, [2]float64{0.0005, 0.0005}, [2]float64{0.010, 0.020}, [2]float64{0.014, 0.028})
	page, orders := filepath.Join(t.TempDir(), "page.html"), filepath.Join(t.TempDir(), "orders.csv")
	for _, c := range []struct {
		name   string
		args   string
		status int
		want   []string
	}{
		{"Megatron", "--for megatron --layout Et*8|t*8|t*8|t*8L --html " + page, exitDone, []string{
			"present  5.2330", "1        4.9870", "No layout is better than the first", "1.049 times as fast", `--pipeline-model-parallel-layout "Et*9|t*8|t*8|t*7L"`, "--dist-ckpt-optim-fully-reshardable"}},
		{"the best already", "--for megatron --layout Et*9|t*8|t*8|t*7L", exitNothing, []string{"Nothing is better than the present layout"}},
		{"torchtitan", "--for torchtitan --layout 8,8,8,8 --schedule-csv " + orders, exitDone, []string{"1        4.9870", `pipeline_parallel_schedule="1F1B"`, `["layers.25", "layers.26", "layers.27", "layers.28", "layers.29", "layers.30", "layers.31", "norm", "lm_head"]`}},
		{"DeepSpeed", "--for deepspeed --layout uniform", exitDone, []string{"present", "0,9,18,26,34", "self.parts = [0, 10, 18, 26, 34]"}},
		{"nanotron", "--for nanotron", exitDone, []string{"9,8,8,7", "LlamaDecoderLayer: 8"}},
		{"unknown trainer", "--for fairscale", exitUsage, []string{"--for fairscale: unknown, want one of megatron, torchtitan, deepspeed, nanotron"}},
		{"other blocks", "--for megatron --layout Et*8|t*8|t*8|t*7L", exitUsage, []string{"31 t, want 32"}},
		{"no grammar", "--for megatron --layout E,(t)|t|t|tL", exitUsage, []string{`'('`}},
		{"few stages", "--for megatron --layout Et*16|t*16L", exitUsage, []string{"2 virtual stages, want a multiple of the 4 stages"}},
		{"half of a whole", "--for torchtitan --half", exitUsage, []string{"torchtitan cannot cut a block in halves"}},
		{"no halves", "--for megatron --half", exitUsage, []string{"--half: no block of the costs has two layers"}},
		{"chunks and messages", "--for torchtitan --chunks 1,2 --message 0.001 --layout 8,8,8,8", exitDone, []string{"interleaved x 2", "1f1b x 1"}},
		{"chunks", "--for deepspeed --chunks 2", exitUsage, []string{"want --chunks 1"}},
		{"no memory", "--for deepspeed --layout parameters", exitUsage, []string{"no bytes of parameters"}},
		{"foreign CSV", "--for megatron --schedule-csv " + orders, exitUsage, []string{"want --for torchtitan"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"layout", "--costs", costs, "--stages", "4", "--microbatches", "16"}, strings.Fields(c.args)...)
			e := says(args...)
			if e.status != c.status {
				t.Fatalf("status %d, want %d: %s%s", e.status, c.status, e.stdout, e.stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(e.stdout+e.stderr, want) {
					t.Errorf("no %q in\n%s%s", want, e.stdout, e.stderr)
				}
			}
		})
	}
	for path, want := range map[string]string{page: "1.049 times as fast", orders: "0F0"} {
		text, err := os.ReadFile(path)
		expect.OK(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: no %q in %.300s", path, want, text)
		}
	}
	answer := decoded[layouts.Answer](t, "layout", "--costs", costs, "--stages", "4", "--microbatches", "16", "--for", "megatron")
	if len(answer.Best) != 5 || !answer.Proven || answer.Clock != "sim" {
		t.Errorf("%+v", answer)
	}
}

func TestLayoutRefusesCosts(t *testing.T) {
	zero := costsFile(t, 8, [2]float64{}, [2]float64{}, [2]float64{})
	few := costsFile(t, 2, [2]float64{1, 1}, [2]float64{1, 2}, [2]float64{1, 2})
	for path, want := range map[string]string{
		zero: "every layer takes 0 seconds", few: "4 places for the parts of 8 virtual stages",
		"absent.json": "no such file",
	} {
		e := says("layout", "--costs", path, "--stages", "8", "--microbatches", "16", "--for", "deepspeed")
		if e.status != exitUsage || !strings.Contains(e.stderr, want) || strings.Count(e.stderr, "\n") != 1 {
			t.Errorf("status %d, %q, want %q", e.status, e.stderr, want)
		}
	}
}
