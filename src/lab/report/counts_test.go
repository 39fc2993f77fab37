package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/record"
)

// depths returns a run of 20 steps with exits after blocks 1 and 3 and with routed blocks, where
// the predictor decides.
func depths(t *testing.T, kind string) Run {
	t.Helper()
	r := counting(t, 20, []string{"dynamic.kind=" + kind, "train.steps=2000", "exit.after=1,3", "mod.route=predictor", "parallel.microbatch_size=1"})
	for i := range r.Metrics {
		m := &r.Metrics[i]
		m.BatchSize = 2 // microbatches
		if r.Config.Dynamic.Has("exit") {
			m.Counts = append(m.Counts,
				record.LayerCounts{Layer: "exit.0", Name: "exit", Values: []int64{128, 32, 24, 1, 1, 500, 16000}},
				record.LayerCounts{Layer: "exit.1", Name: "exit", Values: []int64{96, 0, 0, 1, 1, 250, 0}},
				record.LayerCounts{Layer: "exit.0", Name: "exit.around", Values: []int64{1_500_000_000, 0, 0}},
				record.LayerCounts{Layer: "elsewhere", Name: "exit", Values: []int64{128, 32, 24, 1, 1, 1}})
		}
		if r.Config.Dynamic.Has("mod") {
			m.Counts = append(m.Counts,
				record.LayerCounts{Layer: "block.1", Name: "routed", Values: []int64{128, 16, 96, 0, 0}},
				record.LayerCounts{Layer: "block.3", Name: "routed", Values: []int64{96, 12}})
		}
	}
	return r
}

// loaded returns a run of 20 steps with two experts in two layers, which drop some
// assignments.
func loaded(t *testing.T, dropped int64) Run {
	t.Helper()
	sets := []string{"model.family=llama", "dynamic.kind=moe", "moe.experts=2"}
	if dropped > 0 {
		sets = append(sets, "moe.capacity=1")
	}
	return counting(t, 20, sets,
		record.LayerCounts{Layer: "block.0", Name: "experts", Values: []int64{8, dropped, 0, 0, 3, 3}},
		record.LayerCounts{Layer: "block.1", Name: "experts", Values: []int64{8, dropped, 0, 0, 6, 0}})
}

// TestLoadCharts: there is a chart of what is dropped only where anything can be.
func TestLoadCharts(t *testing.T) {
	for dropped, want := range map[int64]int{0: 1, 2: 2} {
		list := loaded(t, dropped).countCharts()
		if len(list) != want {
			t.Fatalf("%d charts, want %d", len(list), want)
		}
		for i, title := range []string{"fullest expert", "dropped assignments"}[:want] {
			c := list[i]
			if c.Title != title || len(c.Curves) != 2 || c.Curves[1].Name != "block 1" || c.Curves[i].Y[19] != []record.Float{1, 25}[i] {
				t.Errorf("%s: %+v", title, c)
			}
		}
	}
}

// TestExpertTable: a row for each layer with experts, of the last steps.
func TestExpertTable(t *testing.T) {
	r := loaded(t, 0)
	r.Metrics[0].Counts = append(r.Metrics[0].Counts, record.LayerCounts{Layer: "block.0", Name: "experts", Values: []int64{8, 0, 0, 0, 900, 3}})
	want := [][]string{{"layer", "expert 0", "expert 1"}, {"block 0", "50.0", "50.0"}, {"block 1", "100.0", "0.0"}}
	if got := r.countTable(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := counting(t, 3, nil).countTable(); got != nil {
		t.Errorf("%q of a run without experts", got)
	}
}

// TestCountCharts: a chart for each number that layers counted, a curve for each layer
// that counted any.
func TestCountCharts(t *testing.T) {
	r := depths(t, "mod+exit")
	type want struct {
		names []string
		last  []float64
	}
	wants := map[string]want{
		"tokens that leave":        {[]string{"exit 0", "exit 1"}, []float64{25, 0}},
		"right when they leave":    {[]string{"exit 0"}, []float64{75}},
		"loss where tokens leave":  {[]string{"exit 0"}, []float64{0.5}},
		"loss of those that go on": {[]string{"exit 0", "exit 1"}, []float64{0.5, 0.25}},
		"thresholds of exits":      {[]string{"exit 0"}, []float64{0.75}},
		"tokens taken":             {[]string{"block 1", "block 3"}, []float64{12.5, 12.5}},
		"predictor accuracy":       {[]string{"block 1"}, []float64{75}},
	}
	list := r.countCharts()
	if len(list) != len(wants) {
		t.Errorf("%d charts, want %d", len(list), len(wants))
	}
	for _, c := range list {
		var got want
		for _, n := range c.Curves {
			got.names, got.last = append(got.names, n.Name), append(got.last, float64(n.Y[len(n.Y)-1]))
		}
		if w := wants[c.Title]; !slices.Equal(got.names, w.names) || !slices.Equal(got.last, w.last) {
			t.Errorf("%s: %v, want %v", c.Title, got, w)
		}
	}
	if list := counting(t, 3, nil).countCharts(); list != nil {
		t.Errorf("%d charts of a run that counts nothing", len(list))
	}
}

// TestPlasticityChart: curves of evenly spread layers, in decades, interrupted where a
// layer was not evaluated; what is no number above 0 is left out.
func TestPlasticityChart(t *testing.T) {
	r := counting(t, 40, []string{"dynamic.kind=freeze", "train.steps=2000", "model.blocks=12"})
	for i := 0; i < 40; i += 10 {
		m := &r.Metrics[i]
		m.Plasticity, m.EvaluationSeconds = make(map[int]float64), 0.002
		for layer := range 11 {
			m.Plasticity[layer] = 3e-5 / float64(layer+1)
		}
		m.Plasticity[99] = 1
	}
	delete(r.Metrics[10].Plasticity, 0)
	r.Metrics[20].Plasticity[10] = 0
	list := r.countCharts()
	if len(list) != 1 || len(list[0].Curves) != mostLayers {
		t.Fatalf("%d charts", len(list))
	}
	c := list[0]
	first, last := c.Curves[0], c.Curves[mostLayers-1]
	if first.Name != "embedding" || last.Name != "block 9" || !slices.Equal(c.Steps, []int{0, 10, 20, 30}) || finite(first.Y[1]) || !finite(first.Y[2]) || finite(last.Y[2]) || !finite(last.Y[3]) {
		t.Errorf("%+v and %+v", first, last)
	}
	if want := "found out in 4 steps, 2 ms each over all stages; 8 of 11 layers"; !strings.HasSuffix(c.About, want) {
		t.Errorf("%q, want …%q", c.About, want)
	}
}

// TestModelAtTheEnd: a sentence says what the kinds have made of a model.
func TestModelAtTheEnd(t *testing.T) {
	freeze := func(at, thaw int) Run {
		r := counting(t, 20, []string{"dynamic.kind=freeze", "train.steps=2000"})
		for step, what := range map[int]string{at: "freeze", thaw: "thaw"} {
			if step < 20 {
				r.Events = append(r.Events, record.Event{Step: step, Kind: record.Dynamic, Detail: map[string]any{"what": what, "layers": 3.}})
			}
		}
		slices.SortFunc(r.Events, func(a, b record.Event) int { return a.Step - b.Step })
		return r
	}
	pruned := counting(t, 20, []string{"dynamic.kind=prune"})
	for i := range pruned.Metrics {
		pruned.Metrics[i].Sparsity = 0.8
	}
	for name, c := range map[string]struct {
		run  Run
		want string
	}{
		"dense":     {counting(t, 20, nil), ""},
		"prune":     {pruned, "80 % of the prunable weights pruned"},
		"frozen":    {freeze(5, 30), "3 of 6 layers are frozen"},
		"thawed":    {freeze(5, 9), "no layer is frozen any more, at most 3 of 6 were (steps 5 to 8)"},
		"none":      {freeze(25, 30), "no layer froze"},
		"exit":      {depths(t, "exit"), "25 % of the tokens leave early; blocks work on 81.2 % of all tokens"},
		"mod":       {depths(t, "mod"), "routed blocks take 12.5 % of their tokens; blocks work on 55.5 % of all tokens"},
		"mod+exit":  {depths(t, "mod+exit"), "25 % of the tokens leave early; routed blocks take 12.5 % of their tokens; blocks work on 49.2 % of all tokens"},
		"experts":   {loaded(t, 0), "the fullest expert of a layer has 1.5 times the mean load"},
		"dropping":  {loaded(t, 2), "the fullest expert of a layer has 1.5 times the mean load, 25 % of the assignments are dropped"},
		"attention": {counting(t, 20, []string{"dynamic.kind=attention"}, record.LayerCounts{Layer: "block.1", Name: "pairs", Values: []int64{9, 100}}), "9 % of the causal scores of attention are computed"},
	} {
		if got := c.run.changer().sentence(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestModelWords: while a run trains, its log has what the model is, also where a kind
// goes on from before.
func TestModelWords(t *testing.T) {
	r := depths(t, "exit")
	m := NewModel(r.Config)
	if got := m.Words(r.Metrics[3]); !slices.Equal(got, []string{"tokens in blocks: 81.2 %"}) {
		t.Error(got)
	}
	r = counting(t, 1, []string{"dynamic.kind=prune+freeze", "train.steps=2000"})
	m = NewModel(r.Config)
	r.Metrics[0].Sparsity = 0.5
	for _, c := range []struct {
		what string
		want string
	}{{"prune", "frozen layers: 0 of 6"}, {"prune+freeze", "frozen layers: 2 of 6"}, {"thaw", "frozen layers: 0 of 6"}} {
		m.Event(record.Event{Kind: record.Dynamic, Detail: map[string]any{"what": c.what, "layers": 2.}})
		if got := m.Words(r.Metrics[0]); !slices.Equal(got, []string{"sparsity: 50 %", c.want}) {
			t.Error(got)
		}
	}
	m = NewModel(counting(t, 1, nil).Config)
	packed := NewModel(config.Default())
	if got := append(packed.Words(record.Metrics{Ranks: 8}), packed.Words(record.Metrics{Ranks: 6})...); !slices.Equal(got, []string{"ranks: 6 of 8"}) {
		t.Errorf("%q of a run that was packed", got)
	}
	if got := m.Words(record.Metrics{}); got != nil {
		t.Errorf("%v of a dense model", got)
	}
}

// TestPhasesSayChanges: phases report the changes in the runs, and nothing else.
func TestPhasesSayChanges(t *testing.T) {
	var text strings.Builder
	for _, c := range []struct{ kind, want string }{{"exit", "work"}, {"freeze", "frozen"}, {"none", "balancer"}} {
		text.Reset()
		r := depths(t, c.kind)
		if c.kind == "freeze" {
			r.Events = []record.Event{{Step: 4, Kind: record.Dynamic, Detail: map[string]any{"what": "freeze", "layers": 3.}}}
		}
		if err := Phases(&text, []Run{r}, false); err != nil || strings.Fields(text.String())[1] != c.want || strings.Count(text.String(), "balancer") != 1 {
			t.Errorf("%s: %v\n%s", c.kind, err, text.String())
		}
		if seen, _ := r.changer().change(segment{0, 1}); seen.Layers != len(r.chain()) {
			t.Error("layers")
		}
	}
	both := counting(t, 20, []string{"dynamic.kind=prune+freeze", "train.steps=2000"})
	both.Events = []record.Event{
		{Step: 4, Kind: record.Dynamic, Detail: map[string]any{"what": "prune", "sparsity": 0.5}},
		{Step: 9, Kind: record.Dynamic, Detail: map[string]any{"what": "freeze", "layers": 3.}},
	}
	for i := range both.Metrics[4:] {
		both.Metrics[4+i].Sparsity = 0.5
	}
	if rows, err := PhaseRows([]Run{both}); err != nil || len(rows) != 3 || rows[2].Sparsity != 0.5 || rows[2].Frozen != 3 || rows[1].Frozen != 0 {
		t.Errorf("pruned, then frozen: %+v, %v", rows, err)
	}
	rows, err := PhaseRows([]Run{depths(t, "exit")})
	if err != nil || len(rows) != 1 || math.Abs(float64(rows[0].Work)-0.8125) > 1e-9 {
		t.Errorf("%+v, %v", rows, err)
	}
	text.Reset()
	if err := Changes(&text, []Run{depths(t, "exit"), depths(t, "exit")}); err != nil || text.String() != "\nmodel at the end: 25 % of the tokens leave early; blocks work on 81.2 % of all tokens\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
}
