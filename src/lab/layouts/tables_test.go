package layouts

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/schedule"
)

// measured is a published table of measured seconds. Each kind has forward and backward, or forward and
// the two parts of backward.
type measured struct {
	Model, Source, Note           string
	Unit                          float64 `json:"unit_seconds"`
	Embedding, Blocks, MTPs, Head []string
	Kinds                         map[string][]float64
}

// readMeasured returns a table of testdata.
func readMeasured(t *testing.T, name string) measured {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	expect.OK(t, err)
	var m measured
	expect.OK(t, json.Unmarshal(text, &m))
	return m
}

// layers returns the chain of the table.
func (m measured) layers() (list []cost.Layer) {
	add := func(name, kind string) {
		x := m.Kinds[kind]
		l := cost.Layer{Name: name, Forward: m.Unit * x[0], BackwardInput: m.Unit * x[1] / 2, BackwardWeight: m.Unit * x[1] / 2}
		if len(x) == 3 {
			l.BackwardInput, l.BackwardWeight = m.Unit*x[1], m.Unit*x[2]
		}
		list = append(list, l)
	}
	for _, kind := range m.Embedding {
		add("embedding", kind)
	}
	for b, kind := range m.Blocks {
		add(fmt.Sprintf("block.%d", b), kind)
	}
	for k, kind := range m.MTPs {
		add(fmt.Sprintf("mtp.%d", k), kind)
	}
	for _, kind := range m.Head {
		add(kind, kind)
	}
	if len(m.Embedding)+len(m.Head) == 0 { // not in the trace: they take no time here
		list = slices.Concat([]cost.Layer{{Name: "embedding"}}, list, []cost.Layer{{Name: "head"}})
	}
	return list
}

// fill takes the missing backward of the head as twice its forward.
func (m measured) fill() {
	if x := m.Kinds["output"]; x != nil {
		x[1] = 2 * x[0]
	}
}

// TestHole: costs whose head has no backward are refused. Frozen layers before the first backward are not.
func TestHole(t *testing.T) {
	for _, name := range []string{"deepseek-v4-flash", "deepseek-v4-pro"} {
		m := readMeasured(t, name)
		const want = `layer "output": backward 0, and "mtp.0" before it has one: its gradient came through this layer (a backward that was not measured takes about twice the forward)`
		_, err := Plan(Request{Problem: Problem{Stages: 4, Microbatches: 32}, Trainer: megatron}, cost.Table{Layers: m.layers()})
		if err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
		m.fill()
		if _, err := NewChain(m.layers()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	frozen := append(chainOf(0, 1, 1), chainOf(2, 1, 1)...)
	for l, name := range []string{"embedding", "block.0", "block.1", "head"} {
		frozen[l].Name = name
	}
	if _, err := NewChain(frozen); err != nil {
		t.Errorf("frozen layers: %v", err)
	}
}

// TestMeasured finds layouts for published tables of measured seconds.
func TestMeasured(t *testing.T) {
	for _, c := range []struct {
		table   string
		trainer Trainer
		p       Problem
		present string
		best    string  // "": not held
		gain    float64 // seconds of the present step, divided by those of the best one, at least
	}{
		{"deepseek-v4-flash", megatron, Problem{Stages: 4, Chunks: 1, Microbatches: 64, Schedule: schedule.Kind1F1B}, "Et*10|t*11|t*11|t*11mL", "Et*11|(t*11|)*2t*10mL", 1.0949},
		{"deepseek-v4-pro", megatron, Problem{Stages: 16, Chunks: 1, Microbatches: 64, Schedule: schedule.Kind1F1B}, "Et*4|(t*4|)*13t*4|tmL", "", 1},
		// DeepSpeed's method uniform, which the source uses.
		{"llama-3-8b", deepspeed, Problem{Stages: 4, Chunks: 1, Microbatches: 32, Schedule: schedule.Kind1F1B}, "0,9,18,27,35", "0,9,17,25,35", 1.05},
		{"deepseek-v3", torchtitan, Problem{Stages: 8, Chunks: 2, Microbatches: 32, Schedule: schedule.KindZBV}, "4,4,4,4,4,4,4,4,4,4,3,3,3,3,3,3", "", 1.03},
	} {
		t.Run(c.table, func(t *testing.T) {
			m := readMeasured(t, c.table)
			m.fill()
			a, err := Plan(Request{Problem: c.p, Trainer: c.trainer, Present: c.present}, cost.Table{Clock: "wall", Layers: m.layers()})
			expect.OK(t, err)
			t.Logf("%s: %.3f s, bound %.3f; %s: %.4f times as long", a.Best[0].Text, a.Best[0].Seconds, a.Best[0].Bound, c.present, *a.Gain)
			if *a.Gain < c.gain || c.best != "" && a.Best[0].Text != c.best {
				t.Errorf("%s takes %.4f times as long as %s, want %v and %s", c.present, *a.Gain, a.Best[0].Text, c.gain, c.best)
			}
		})
	}
}
