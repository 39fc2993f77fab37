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
			"present  5.2330", "1        4.9870", "No layout is better than the first", "1.049 times as fast as the present layout", `--pipeline-model-parallel-layout "Et*9|t*8|t*8|t*7L"`, "--dist-ckpt-optim-fully-reshardable"}},
		{"the best already", "--for megatron --layout Et*9|t*8|t*8|t*7L", exitNothing, []string{"Nothing is better than the present layout"}},
		{"torchtitan", "--for torchtitan --layout 8,8,8,8 --schedule-csv " + orders, exitDone, []string{"1        4.9870", `pipeline_parallel_schedule="1F1B"`, "num_pp_microbatches=16", `["layers.25", "layers.26", "layers.27", "layers.28", "layers.29", "layers.30", "layers.31", "norm", "lm_head"]`}},
		{"DeepSpeed", "--for deepspeed --layout uniform", exitDone, []string{"present", "0,9,18,26,34", "self.parts = [0, 10, 18, 26, 34]", "ds_to_universal.py"}},
		{"nanotron", "--for nanotron", exitDone, []string{"9,8,8,7", "LlamaDecoderLayer: 32", "No layout can take less than"}},
		{"unknown trainer", "--for fairscale", exitUsage, []string{"--for fairscale: unknown, want one of megatron, torchtitan, deepspeed, nanotron"}},
		{"other blocks", "--for megatron --layout Et*8|t*8|t*8|t*7L", exitUsage, []string{"31 t, want 32"}},
		{"no grammar", "--for megatron --layout E,(t)|t|t|tL", exitUsage, []string{`'('`}},
		{"few stages", "--for megatron --layout Et*16|t*16L", exitUsage, []string{"2 virtual stages, want a multiple of the 4 stages"}},
		{"half of a whole", "--for torchtitan --half", exitUsage, []string{"torchtitan cannot cut a block in halves"}},
		{"no halves", "--for megatron --half", exitUsage, []string{"--half: no block of the costs has two layers"}},
		{"chunks and messages", "--for torchtitan --chunks 1,2 --message 0.001 --layout 8,8,8,8", exitDone, []string{"interleaved x 2", "1f1b x 1"}},
		{"microbatches of a V", "--for torchtitan --schedule zb-v --chunks 2 --microbatches 9", exitDone, []string{`pipeline_parallel_schedule="ZBVZeroBubble"`, "num_pp_microbatches=9"}},
		{"microbatches of a loop", "--for torchtitan --chunks 2 --microbatches 9", exitUsage, []string{"PyTorch divides 9 microbatches on 4 stages with chunks into 2 rounds"}},
		{"chunks", "--for deepspeed --chunks 2", exitUsage, []string{"want --chunks 1"}},
		{"no memory", "--for deepspeed --layout parameters", exitUsage, []string{"no bytes of parameters"}},
		{"absent type", "--for deepspeed --layout type:nothing", exitUsage, []string{`no layer's name matches "nothing"`}},
		{"absent method", "--for deepspeed --layout best", exitUsage, []string{"or uniform, parameters or type:REGEX"}},
		{"no expression", "--for deepspeed --layout type:[", exitUsage, []string{`"[" is no regular expression`}},
		{"chunks on one stage", "--for megatron --stages 1 --chunks 2", exitUsage, []string{"chunks on 1 stage"}},
		{"a number of chunks twice", "--for torchtitan --chunks 2,2 --json", exitDone, []string{`"chunks":2`}},
		{"message that is no number", "--for megatron --message NaN", exitUsage, []string{"--message NaN: want seconds from 0 to 1"}},
		{"negative memory", "--for megatron --memory -1", exitUsage, []string{`--memory "-1", want an integer from 1`}},
		{"memory without bytes", "--for megatron --memory 80GB", exitUsage, []string{"the costs have no bytes"}},
		{"the head alone", "--for nanotron --layout 11,11,10,0", exitDone, []string{"present", "11,11,10,0"}},
		{"too many blocks", "--for nanotron --layout 11,11,11,0", exitUsage, []string{"more blocks than the 32"}},
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

// TestLayoutOfHalves: blocks of attention and MLP are cut inside, and a pattern with halves is read.
func TestLayoutOfHalves(t *testing.T) {
	var b strings.Builder
	b.WriteString("name,forward_ms,backward_ms\nembedding,1,2\n")
	for i := range 8 {
		fmt.Fprintf(&b, "block.%d.attention,4,8\nblock.%d.mlp,7,14\n", i, i)
	}
	b.WriteString("head,5,10\n")
	folder := t.TempDir()
	table, costs := filepath.Join(folder, "layers.csv"), filepath.Join(folder, "costs.json")
	expect.OK(t, os.WriteFile(table, []byte(b.String()), 0o666))
	if e := says("costs", "--csv", table, "-o", costs); e.status != exitDone {
		t.Fatal(e.stderr)
	}
	for _, c := range []struct {
		args, layout string
		status       int
		want         string
	}{
		{"--half", "Ett|tt|tt|ttL", exitDone, `--hybrid-layer-pattern "*-*-|*-*-*|-*-*|-*-"`},
		{"--half", "*-*-|*-*-|*-*-|*-*-", exitDone, "1.046 times as fast"},
		{"--half", "*-*-|*-*-*|-*-*|-*-", exitNothing, "2,2.5,2,1.5"},
		{"--half", "*-*-|*-*-|*-*-|*-*-*", exitUsage, `the layers are "*-*-*-*-*-*-*-*-*", and those of the costs "*-*-*-*-*-*-*-*-"`},
		{"--half", "*-*-|*-*-|*-*-*-*-", exitUsage, "3 virtual stages, want a multiple of the 4 stages"},
		{"", "*-*-|*-*-*|-*-*|-*-", exitUsage, "cuts inside blocks, want --half"},
	} {
		args := append([]string{"layout", "--costs", costs, "--stages", "4", "--microbatches", "16", "--for", "megatron", "--layout", c.layout}, strings.Fields(c.args)...)
		if e := says(args...); e.status != c.status || !strings.Contains(e.stdout+e.stderr, c.want) {
			t.Errorf("%v: status %d, want %d and %q\n%s%s", args, e.status, c.status, c.want, e.stdout, e.stderr)
		}
	}
}

// TestLayoutWithMemory: a present layout above the limit is no reason to stay, and numbers of chunks that need
// too much are left out.
func TestLayoutWithMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString("name,forward_ms,backward_ms,parameter_bytes,activation_bytes\nembedding,1,2,4e9,0\n")
	for i := range 16 {
		fmt.Fprintf(&b, "block.%d,10,20,1e9,1e9\n", i)
	}
	b.WriteString("head,10,20,4e9,1e9\n")
	folder := t.TempDir()
	table, costs := filepath.Join(folder, "layers.csv"), filepath.Join(folder, "costs.json")
	expect.OK(t, os.WriteFile(table, []byte(b.String()), 0o666))
	if e := says("costs", "--csv", table, "-o", costs); e.status != exitDone {
		t.Fatal(e.stderr)
	}
	for _, c := range []struct {
		args   string
		status int
		want   []string
	}{
		{"--layout Et*4|t*4|t*4|t*4L", exitDone, []string{"GB of the present layout by stage: 24.0 16.0 12.0 13.0\n"}},
		{"--layout Et*4|t*4|t*4|t*4L --memory 16000000000", exitDone, []string{"The present layout is above the limit on memory. The first is 0.8", `"Ett|t*4|t*5|t*5L"`}},
		{"--layout Ettt|t*5|t*5|tttL --memory 20000000000", exitNothing, []string{"Nothing is better than the present layout"}},
		{"--chunks 1,2 --memory 16000000000", exitDone, []string{"Left out: 2 chunks: no layout was found that needs at most 16000000000 bytes on every stage; one needs 19000000000", `"Ett|t*4|t*5|t*5L"`}},
		{"--chunks 1,2 --memory 5000000000", exitUsage, []string{"1 chunks: no layout was found that needs at most 5000000000 bytes on every stage; one needs "}},
		{"--stages 1024 --chunks 64 --microbatches 16384", exitUsage, []string{"2147483648 passes in a step"}},
	} {
		args := append([]string{"layout", "--costs", costs, "--stages", "4", "--microbatches", "16", "--for", "megatron"}, strings.Fields(c.args)...)
		e := says(args...)
		if e.status != c.status {
			t.Errorf("%s: status %d, want %d\n%s%s", c.args, e.status, c.status, e.stdout, e.stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(e.stdout+e.stderr, want) {
				t.Errorf("%s: no %q in\n%s%s", c.args, want, e.stdout, e.stderr)
			}
		}
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
