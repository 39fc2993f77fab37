package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

func TestReadSeries(t *testing.T) {
	layer := cost.Layer{Name: "block0", Forward: 1, BackwardInput: 2, BackwardWeight: 3, NonZeros: 4, Output: 5, Bytes: cost.Bytes{Activations: 6, Held: 7}}
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, 2)
	expect.OK(t, err)
	table := cost.Table{Clock: "sim", Layers: []cost.Layer{layer, layer}}
	slow := table
	slow.Slow, slow.Scale = []float64{1, 2}, [][]float64{{1, 2}, {3, 4}}
	want := Series{
		{Phase: cost.Phase{Step: 0, Steps: 3, Table: table}},
		{Phase: cost.Phase{Step: 3, Steps: 1, Change: "prune", Table: slow},
			Samples: [][][]cost.Stage{{{{Forward: 1, Input: 1.021, Weight: 0.97}}, {{Forward: 1, Input: 1, Weight: 1}}}},
			Run:     &Course{Layout: layout.New(partition.Partition{0, 1, 2}, order, 1, layout.StageMajor), Simulated: true, Makespan: 9, Rest: 2, Balancing: 3}},
	}
	var text strings.Builder
	for _, s := range want {
		b, err := json.Marshal(s)
		expect.OK(t, err)
		text.Write(append(b, '\n'))
	}
	got, err := ReadSeries("costs.jsonl", strings.NewReader(text.String()), 2)
	expect.OK(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestReadOlderSeries: files that were written before runs had a layout read on.
func TestReadOlderSeries(t *testing.T) {
	const layer = `{"forward":1,"backward_input":1,"backward_weight":1}`
	got, err := ReadSeries("costs.jsonl", strings.NewReader(`{"gap":0.5,"layers":[`+strings.Repeat(layer+",", 3)+layer+
		`],"run":{"cuts":[0,1,2,3,4],"schedule":"zb-v","vee":true,"stages":2,"microbatches":2,"latency_seconds":1,"makespan":5}}`), 4)
	expect.OK(t, err)
	order, err := schedule.New(schedule.KindZBV, 2, 2, 2)
	expect.OK(t, err)
	want := &Course{Layout: layout.New(partition.Partition{0, 1, 2, 3, 4}, order, 1, layout.StageMajor), Latency: 1, Makespan: 5}
	if diff := cmp.Diff(want, got[0].Run); diff != "" {
		t.Error(diff)
	}
	if got[0].Dispatch != 0.5 {
		t.Errorf("dispatch of %v seconds, want 0.5", got[0].Dispatch)
	}
}

func TestReadSeriesRefuses(t *testing.T) {
	const layer = `{"forward":1,"backward_input":1,"backward_weight":1}`
	const heavy = `{"forward":1,"backward_input":1,"backward_weight":1,"bytes":{"parameters":600000000000000}}`
	for _, c := range []struct{ name, text, want string }{
		{"empty", ``, "no cost table"},
		{"no JSON", `{"layers":`, "table 0: unexpected EOF"},
		{"other count", `{"layers":[` + layer + `]}`, "layers: 1, want 2"},
		{"none", `{}`, "layers: 0, want 2"},
		{"negative", `{"layers":[` + layer + `,{"forward":-1,"backward_input":1,"backward_weight":1}]}`, "layers[1].forward: -1, want a finite number >= 0"},
		{"negative bytes", `{"layers":[` + layer + `,{"forward":1,"backward_input":1,"backward_weight":1,"bytes":{"held":-8}}]}`, "layers[1].bytes: -8, want a finite number >= 0"},
		{"missing", `{"layers":[` + layer + `,{"name":"block7","forward":1,"backward_weight":1}]}`, `layer "block7": backward_input is missing`},
		{"NaN", `{"layers":[{"forward":NaN}]}`, "invalid character 'N'"},
		{"null", `{"layers":[` + layer + `,{"forward":null,"backward_input":1,"backward_weight":1}]}`, "forward is missing"},
		{"too large", `{"layers":[{"forward":1e999}]}`, "1e999"},
		{"gap", `{"steps":2,"layers":[` + layer + `,` + layer + `]}{"step":3,"layers":[` + layer + `,` + layer + `]}`, "table 1: step: 3, want 2"},
		{"no stages", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"cuts":[0,2]}}}`, "stages: 0"},
		{"no layout", `{"layers":[` + layer + `,` + layer + `],"run":{"makespan":1}}`, "run.layout: cuts: none"},
		{"endless", `{"steps":1000000000000000,"layers":[` + layer + `,` + layer + `]}`, "steps: 1000000000000000 from 0"},
		{"endless dispatch", `{"gap":1e308,"layers":[` + layer + `,` + layer + `]}`, "dispatch_seconds: 1e+308"},
		{"endless latency", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"latency_seconds":1e308}}`, "run.latency_seconds: 1e+308, want 0 to 10"},
		{"endless layer", `{"layers":[` + layer + `,{"forward":1e7,"backward_input":1,"backward_weight":1}]}`, "layers[1].forward: 1e+07, want at most 1e+06"},
		{"endless bytes", `{"layers":[` + layer + `,{"forward":1,"backward_input":1,"backward_weight":1,"bytes":{"optimizer":9000000000000000000}}]}`, "layers[1].bytes: 9e+18, want at most 1.125899906842624e+15"},
		{"bytes of all", `{"layers":[` + heavy + `,` + heavy + `]}`, "layers: bytes of all: 1.2e+15, want at most 1.125899906842624e+15"},
		{"endless slowness", `{"slow":[1e7],"layers":[` + layer + `,` + layer + `]}`, "slow[0]: 1e+07, want at most 1e+06"},
		{"endless fixed seconds", `{"fixed":[1e7],"layers":[` + layer + `,` + layer + `]}`, "fixed[0]: 1e+07, want at most 1e+06"},
		{"endless microbatch", `{"scale":[[1],[1e7]],"layers":[` + layer + `,` + layer + `]}`, "scale[1][0]: 1e+07, want a number from 0 to 1e+06"},
		{"link slower than a telephone's", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"bandwidth_bytes":1}}`, "run.bandwidth_bytes: 1, want 0 (infinite) or 1000 to 1e+15"},
		{"unknown key", `{"layerss":[]}`, "table 0: layerss: unknown key; the nearest is layers"},
		{"unknown key of a layer", `{"layers":[` + layer + `,{"forwrd":1}]}`, "table 0: layers[1].forwrd: unknown key; the nearest is forward"},
		{"unknown key of bytes", `{"layers":[{"bytes":{"activation":1}}]}`, "layers[0].bytes.activation: unknown key; the nearest is activations"},
		{"unknown key of a run", `{"run":{"latency":1}}`, "run.latency: unknown key; the nearest is "},
		{"unknown key of a layout", `{"run":{"layout":{"stage":1}}}`, "run.layout.stage: unknown key; the nearest is stages"},
		{"key in capitals", `{"Layers":[]}`, "Layers: unknown key; the nearest is layers"},
		{"key twice", `{"step":1,"step":2}`, "step: stands twice"},
		{"key of a layer twice", `{"layers":[{"forward":1,"forward":2}]}`, "layers[0].forward: stands twice"},
		{"no makespan", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"makespan":1e-320}}`, "run.makespan: 1e-320"},
		{"slow of others", `{"slow":[1,1],"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"makespan":1}}`, "slow: 2 numbers, want one for each of run.layout.stages = 1"},
		{"rows", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"makespan":1,"scale":[[],[]]}}`, "run.scale: 2 rows, want 1"},
		{"samples of others", `{"layers":[` + layer + `,` + layer + `],"samples":[[[[1,1,1]]]]}`, "samples[0]: 1 rows, want 2"},
		{"no sample", `{"layers":[` + layer + `,` + layer + `],"samples":[[[[1,1,1]],[]]]}`, "samples[0][1]: no microbatch"},
		{"negative sample", `{"layers":[` + layer + `,` + layer + `],"samples":[[[[1,1,1]],[[1,-1,1]]]]}`, "samples[0][1][0]"},
		{"negative rest", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"makespan":1,"rest_seconds":-1}}`, "rest_seconds -1"},
		{"two of three", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"makespan":1,"scale":[[[1,2]]]}}`, "2 numbers, want forward"},
		{"cuts", `{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b","cuts":[0,1]},"makespan":1}}`, "run.layout.cuts: 1 layers, want 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadSeries("costs.json", strings.NewReader(c.text), 2)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "costs.json: ") {
				t.Errorf("got %v, want costs.json: …%s…", err, c.want)
			}
		})
	}
}

// TestHalved: no step and no second of balancing is lost.
func TestHalved(t *testing.T) {
	var list Series
	for step := range 5 {
		list = append(list, Phase{Phase: cost.Phase{Step: step, Steps: 1}, Run: &Course{Balancing: 1}})
	}
	got := list.Halved()
	want := Series{
		{Phase: cost.Phase{Step: 0, Steps: 2}, Run: &Course{Balancing: 2}}, {Phase: cost.Phase{Step: 2, Steps: 2}, Run: &Course{Balancing: 2}},
		{Phase: cost.Phase{Step: 4, Steps: 1}, Run: &Course{Balancing: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list[0].Steps != 1 || list[0].Run.Balancing != 1 {
		t.Errorf("%+v: the series has changed", list[0])
	}
}

// TestOpenSeries: a torn last line is left out with a note, a torn table is not.
func TestOpenSeries(t *testing.T) {
	const table = `{"steps":1,"layers":[{"forward":1,"backward_input":1,"backward_weight":1}]}`
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	for _, c := range []struct{ name, text, note, wrong string }{
		{"whole", table + "\n", "", ""},
		{"without a newline", table, "", ""},
		{"torn", table + "\n" + table[:20], path + ":2: the last line is torn and left out", ""},
		{"NULs", table + "\n\x00\x00\x00", path + ":2: the last line is torn and left out", ""},
		{"dispatch by its former name", strings.Replace(table, "{", `{"gap":0.5,`, 1) + "\n" + table[:20],
			path + ":2: the last line is torn and left out; " + path + ": gap is called dispatch_seconds now", ""},
		{"nothing else", table[:20], path + ":1: the last line is torn and left out",
			path + ": no cost table, want at least one (" + path + ":1: the last line is torn and left out)"},
	} {
		expect.OK(t, os.WriteFile(path, []byte(c.text), 0o666))
		series, notes, err := OpenSeries(path, 1)
		if strings.Join(notes, "; ") != c.note || err == nil && (c.wrong != "" || len(series) != 1) || err != nil && err.Error() != c.wrong {
			t.Errorf("%s: %d phases, notes %q, %v", c.name, len(series), notes, err)
		}
	}
}

// FuzzReadSeries: what is accepted can be read again, and costs are finite.
func FuzzReadSeries(f *testing.F) {
	const layer = `{"forward":1,"backward_input":1,"backward_weight":1}`
	f.Add(`{"steps":2,"layers":[` + layer + `]}{"step":2,"slow":[1],"scale":[[1,2]],"layers":[` + layer + `]}`)
	f.Add(`{"layers":[` + layer + `,` + layer + `],"run":{"layout":{"stages":1,"microbatches":1,"schedule":"1f1b","cuts":[0,2]},"makespan":1,"scale":[[[1,2,3]]]}}`)
	f.Add(`{"layers":[` + layer + `,` + layer + `],"run":{"cuts":[0,1,2],"schedule":"zb-v","vee":true,"stages":1,"microbatches":2,"makespan":5}}`)
	f.Fuzz(func(t *testing.T, text string) {
		series, err := ReadSeries("f", strings.NewReader(text), 0)
		if err != nil {
			return
		}
		var b strings.Builder
		for _, p := range series {
			if s := p.Costs().Mean().Seconds(); slices.ContainsFunc(s, func(x float64) bool { return !(x >= 0) }) {
				t.Errorf("seconds %v", s)
			}
			text, err := json.Marshal(p)
			expect.OK(t, err)
			b.Write(text)
		}
		if _, err := ReadSeries("f", strings.NewReader(b.String()), 0); err != nil {
			t.Errorf("written and read again: %v\n%s", err, b.String())
		}
	})
}
