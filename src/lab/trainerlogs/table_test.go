package trainerlogs

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
)

func TestTable(t *testing.T) {
	c, err := read("csv", written(t, "name,forward_ms,backward_ms,weight_ms,parameter_bytes,activation_bytes\nembedding,1,1,1,100,10\nblock.0,10,20,8,200,20\n\"block.1\", 12, 24, 9, 200, 20\nnorm,0.01,0.02,0.01,1,1\nhead,40,80,40,300,5\n"), Run{Layout: "Et|tL"})
	expect.OK(t, err)
	if got, want := c.Table.Layers[2], (cost.Layer{Name: "block.1", Forward: 0.012, BackwardInput: 0.015, BackwardWeight: 0.009, Bytes: cost.Bytes{Parameters: 200, Activations: 20}}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if k := c.Kinds[1]; k.Name != "block.N" || k.Layers != 2 || k.Samples != 2 || math.Abs(k.Seconds.Forward-0.011) > 1e-12 || len(c.Kinds) != 4 || c.Table.Deviation != nil || len(c.Notes) != 0 {
		t.Errorf("%+v", c)
	}
	c, err = read("csv", written(t, "backward_ms,name,forward_ms\n2,embedding,1\n20,block.0,10\n2,head,1\n"), Run{})
	expect.OK(t, err)
	if e, b := c.Table.Layers[0], c.Table.Layers[1]; e.BackwardInput != 0 || e.BackwardWeight != 0.002 || b.BackwardInput != 0.01 || b.BackwardWeight != 0.01 || len(c.Notes) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestTableRefuses(t *testing.T) {
	const header = "name,forward_ms,backward_ms\n"
	for _, c := range []struct {
		name, text string
		run        Run
		want       string
	}{
		{"empty", "", Run{}, "empty, want the header name,forward_ms,backward_ms[,weight_ms,"},
		{"no table", "{\"layers\": []}\n", Run{}, "no table, want the header name,forward_ms"},
		{"no header", "block.0,1,2\n", Run{}, `column "block.0", want the header`},
		{"a column twice", "name,forward_ms,forward_ms\n", Run{}, `column "forward_ms", want the header`},
		{"no backward", "name,forward_ms\n", Run{}, "no column backward_ms, want the header"},
		{"no layer", header, Run{}, "no layer"},
		{"a hole", header + "block.0,1,2\nhead,3,\n", Run{}, `log:3: backward_ms "", want a number from 0 to 1e+09 (a backward that was not measured takes about twice the forward)`},
		{"a hole of 0", header + "embedding,1,2\nblock.0,1,2\nhead,3,0\n", Run{}, `layer "head": backward 0, and "block.0" before it has one`},
		{"no head", header + "embedding,1,2\nblock.0,1,2\n", Run{}, `the last layer is "block.0": want the head behind it`},
		{"a word", header + "block.0,fast,2\n", Run{}, `log:2: forward_ms "fast", want a number`},
		{"negative", header + "block.0,-1,2\n", Run{}, "want a number from 0 to 1e+09"},
		{"infinite", header + "block.0,1,Inf\n", Run{}, "want a number from 0 to 1e+09"},
		{"not a number", header + "block.0,1,NaN\n", Run{}, "want a number from 0 to 1e+09"},
		{"cut", header + "block.0,1\n", Run{}, "log:2: 2 cells, want 3 as in the header"},
		{"zero", header + "embedding,0,0\nblock.0,0,0\nhead,0,0\n", Run{}, "every backward is 0"},
		{"a block is missing", header + "block.0,1,2\nblock.2,1,2\n", Run{}, `layer 1, "block.2": want number 1`},
		{"no block", header + "head,1,2\n", Run{}, "no layer has a number"},
		{"other layers", header + "embedding,1,2\nblock.0,1,2\nhead,1,2\n", Run{Layout: "Et|tL"}, "1 layers block.N, and --layout has 2 t"},
		{"weight above backward", "name,forward_ms,backward_ms,weight_ms\nblock.0,1,2,3\n", Run{}, "weight_ms 3 above backward_ms 2"},
		{"large", header + "block.0,1e99,2\n", Run{}, "log:2: forward_ms \"1e99\", want a number from 0 to 1e+09"},
		{"many bytes", "name,forward_ms,backward_ms,parameter_bytes\nblock.0,1,2,1e300\n", Run{}, "log:2: parameter_bytes \"1e300\", want a number from 0 to 1e+15"},
		{"a quote", header + "block.0,1,2\n\"block.1,1,2\n", Run{}, "log:3: a quote out of place"},
		{"a quote inside", header + "bl\"ock.0,1,2\n", Run{}, "log:2: a quote out of place"},
		{"a layer twice", header + "embedding,1,2\nblock.0,1,2\nblock.0,1,2\n", Run{}, `layer 2, "block.0": a second time`},
	} {
		_, err := read("csv", written(t, c.text), c.run)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestHook(t *testing.T) {
	var b strings.Builder
	line := func(layer string, f, back float64) {
		fmt.Fprintf(&b, `[rank1]: {"layer": "%s", "forward_ms": %v, "backward_ms": %v}`+"\n", layer, f, back)
	}
	for step := range 5 {
		x := 1 + 0.01*float64(step-2)
		line("head", 14*x, 28*x) // ranks may be in any order
		line("block.10", 11*x, 22*x)
		fmt.Fprintf(&b, "loss 3.%d\n", step)
		for l := range 10 {
			line(fmt.Sprintf("block.%d", l), 10*x, 20*x)
		}
		line("embedding", 0.5*x, 0)
	}
	c, err := read("hook", written(t, b.String()), Run{Layout: "Et*5|t*6L"})
	expect.OK(t, err)
	if n := len(c.Table.Layers); n != 13 || c.Table.Layers[11].Name != "block.10" || c.Table.Layers[11].Forward != 0.011 || c.Table.Layers[12].BackwardWeight != 0.014 {
		t.Errorf("%+v", c.Table.Layers)
	}
	if k := c.Kinds[1]; k.Layers != 11 || k.Samples != 55 || !(k.Deviation > 0.004 && k.Deviation < 0.02) || len(c.Table.Deviation) != 13 {
		t.Errorf("%+v, deviations %v", k, c.Table.Deviation)
	}
}

func TestHookRefuses(t *testing.T) {
	const good = `{"layer": "block.0", "forward_ms": 1, "backward_ms": 2}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "loss 3\n", "no line with"},
		{"cut", good + `{"layer": "block.1", "forw`, "log:2: "},
		{"no backward", `{"layer": "block.0", "forward_ms": 1}`, "want forward_ms and backward_ms >= 0"},
		{"negative", strings.Replace(good, "1,", "-1,", 1), "want forward_ms and backward_ms >= 0"},
		{"other names", strings.Replace(good, "block.0", "layers.0", 1), `layer "layers.0", want embedding, block.N, mtp.N or head`},
		{"a text", strings.Replace(good, "1,", `"x",`, 1), "log:1: "},
		{"no number", strings.Replace(good, "1,", "NaN,", 1), "want a whole line of the hook, with times in numbers"},
		{"too large a number", strings.Replace(good, "1,", "1e999,", 1), "want a whole line of the hook, with times in numbers"},
		{"a number with a zero before it", good + strings.Replace(good, "block.0", "block.00", 1), `layer "block.00", want embedding, block.N`},
		{"a number with a sign", good + strings.Replace(good, "block.0", "block.+1", 1), `layer "block.+1", want embedding, block.N`},
		{"a rank is missing", good + strings.Replace(good, "block.0", "block.2", 1), `layer 1, "block.2": want number 1`},
	} {
		_, err := read("hook", written(t, c.text), Run{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// standIn is enough of torch to run the hook of the help page: events take turns on a clock that the
// modules advance.
const standIn = `
import sys, types
clock = 0.0
class Event:
    def __init__(self, enable_timing): assert enable_timing
    def record(self): self.at = clock
    def elapsed_time(self, other): return other.at - self.at
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(Event=Event, synchronize=lambda: None)
sys.modules["torch"] = torch
class Module:
    def __init__(self, ms): self.ms, self.hooks = ms, {}
    def register_forward_pre_hook(self, f): self.hooks["f0"] = lambda: f(self, ())
    def register_forward_hook(self, f): self.hooks["f1"] = lambda: f(self, (), None)
    def register_full_backward_pre_hook(self, f): self.hooks["b0"] = lambda: f(self, ())
    def register_full_backward_hook(self, f): self.hooks["b1"] = lambda: f(self, (), ())
    def run(self, what, times):
        global clock
        if self.hooks[what + "0"]() is not None: raise ValueError("a hook that returns a value changes the model")
        clock += self.ms * times
        if self.hooks[what + "1"]() is not None: raise ValueError("a hook that returns a value changes the model")
`

// TestHookOfTheHelpPage runs the hook with a stand-in for torch, and reads what it prints.
func TestHookOfTheHelpPage(t *testing.T) {
	page, err := os.ReadFile("../../cmd/dynmo/help/trainers.md")
	expect.OK(t, err)
	_, code, found := strings.Cut(string(page), "```python\n")
	code, _, ends := strings.Cut(code, "```")
	if !found || !ends {
		t.Fatal("the page has no hook")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	const steps = `
layers = {"embedding": Module(1), "block.0": Module(10), "block.1": Module(12), "head": Module(14)}
report = time_layers(layers)
for step in range(5):
    for microbatch in range(2):
        for m in layers.values(): m.run("f", 1)
    for microbatch in range(2):
        for m in reversed(layers.values()): m.run("b", 2)
    report()
`
	command := exec.Command("python3", "-c", standIn+code+steps)
	command.Stderr = os.Stderr
	out, err := command.Output()
	expect.OK(t, err)
	c, err := read("hook", written(t, string(out)), Run{Layout: "Et|tL"})
	expect.OK(t, err)
	if k := c.Kinds[1]; k.Samples != 8 || k.Deviation != 0 || c.Table.Layers[2].Forward != 0.012 || c.Table.Layers[2].BackwardInput != 0.012 {
		t.Errorf("%+v\n%s", c, out)
	}
}

// FuzzLogs: no text makes a reader fail otherwise than with an error.
func FuzzLogs(f *testing.F) {
	f.Add(uint8(0), " iteration 1/ 9 |\ntimes across ranks (ms):\n  forward-compute:\n     rank  0: 810.00\n  backward-compute:\n     rank  0: 1610.00\n")
	f.Add(uint8(2), start)
	f.Add(uint8(3), "name,forward_ms,backward_ms\nembedding,1,2\nblock.0,1,2\nhead,1,2\n")
	f.Add(uint8(4), `{"layer": "block.0", "forward_ms": 1, "backward_ms": 2}`)
	f.Fuzz(func(t *testing.T, source uint8, text string) {
		s := Sources[int(source)%len(Sources)]
		if s.Flag == "torch-trace" {
			t.Skip()
		}
		c, err := s.Read(written(t, text), Run{Layout: "Et|tL", Stages: 1 + int(source)/8%2, Microbatches: 4})
		if err == nil {
			err = cost.Phase{Table: c.Table}.Check(len(c.Table.Layers))
		}
		if err == nil && len(c.Kinds) == 0 || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
