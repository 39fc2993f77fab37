package study

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/plan/search"
)

// TestFew: every layer of a model has a like layer among the few, and gets its cost. Behind exits
// the cost is that of the tokens that are left, and predictors take the share that they are trained
// to take.
func TestFew(t *testing.T) {
	for _, tc := range []struct {
		kind, set string
		want      string // seconds of some layers
	}{
		{"none", "", "block.0=3 block.11=3 head=20"},
		{"none", "model.grain=half", "block.0.attention=1 block.11.mlp=2 head=20"},
		{"moe", "model.grain=expert", "block.0.attention=1 block.11.experts.0=2 block.11.experts.1=2 head=20"},
		{"none", "model.head_shards=2", "block.3=3 head.0=10 head.1=10"},
		{"attention", "", "block.7=3"},
		{"exit", "exit.share=0.6", "block.2=3 exit.0=8 block.3=2.4 exit.1=7.2 block.6=1.8 head=8"}, // 4 + 0.2·20, …
		{"exit", "exit.confidence=saturation", "block.2=3 exit.0=4 block.11=3 head=20"},
		{"mod", "", "block.0=3 block.1=5 block.11=5"},
		{"mod", "mod.route=predictor", "block.0=3 block.1=3.875 block.11=3.875"}, // 5 - 0.5·3 + 0.125·3
		{"mod+exit", "", "block.2=3 block.3=5 exit.2=4"},
	} {
		t.Run(tc.kind+" "+tc.set, func(t *testing.T) {
			sets := []string{"dynamic.kind=" + tc.kind, "model.blocks=12"}
			if tc.kind == "moe" {
				sets = append(sets, "model.family=llama")
			}
			if tc.set != "" {
				sets = append(sets, tc.set)
			}
			c, err := config.Load("", sets)
			expect.OK(t, err)
			few, err := NewFew(c)
			expect.OK(t, err)
			if few.Config.Model.Blocks > 4 {
				t.Errorf("%d blocks", few.Config.Model.Blocks)
			}
			var measured cost.Table
			for _, d := range model.FromConfig(few.Config).Chain() {
				seconds := map[model.Kind]float64{model.Embedding: 0.1, model.Attention: 1, model.MLP: 2, model.Block: 3, model.Exit: 4,
					model.Head: 20 / float64(c.Model.HeadShards)}[d.Kind]
				if d.Form == mod.Routed {
					seconds = 5
				}
				measured.Layers = append(measured.Layers, cost.Layer{Name: d.Name, Forward: seconds})
			}
			whole := few.Whole(measured, 0.5)
			if len(whole.Layers) != c.Layers() {
				t.Fatalf("%d layers, want %d", len(whole.Layers), c.Layers())
			}
			got := map[string]float64{}
			for _, l := range whole.Layers {
				got[l.Name] = l.Forward
			}
			for pair := range strings.FieldsSeq(tc.want) {
				name, _, _ := strings.Cut(pair, "=")
				if said := fmt.Sprintf("%s=%v", name, math.Round(1e9*got[name])/1e9); said != pair {
					t.Errorf("%s, want %s", said, pair)
				}
			}
		})
	}
}

// TestFewExperts: of blocks with experts one is measured, with as few of them as a token
// goes to if that is asked for; the whole has the bytes of all.
func TestFewExperts(t *testing.T) {
	c, err := config.Load("", []string{"model.family=llama", "model.grain=half", "dynamic.kind=moe", "model.blocks=12", "moe.experts=8", "moe.top=2"})
	expect.OK(t, err)
	few, err := NewFew(c)
	expect.OK(t, err)
	if few.Config.Model.Blocks != 1 {
		t.Errorf("%d blocks, want 1", few.Config.Model.Blocks)
	}
	few.Config, err = moe.Fewer(few.Config, 2)
	expect.OK(t, err)
	measured := search.Dense(few.Config)
	for l := range measured.Layers {
		measured.Layers[l].Forward = float64(l)
	}
	whole := few.Whole(measured, 1)
	if l := whole.Layers[24]; l.Name != "block.11.mlp" || l.Forward != 2 || l.NonZeros != search.Dense(c).Layers[24].NonZeros {
		t.Errorf("%+v, want block.11.mlp of 2 s with all experts", l)
	}
	for _, n := range []int{1, 9} {
		if _, err := moe.Fewer(few.Config, n); err == nil || !strings.Contains(err.Error(), "want dynamic.kind with moe, and moe.top = 2 to moe.experts = ") {
			t.Errorf("%d experts: %v", n, err)
		}
	}
	for set, want := range map[string]string{
		"parallel.experts=spread": "3 experts: config: parallel.replicas = 2, moe.experts = 3",
		"model.grain=expert":      "3 experts: config: moe.groups = 2, moe.experts = 3",
	} {
		c, err := config.Load("", []string{"model.family=llama", "dynamic.kind=moe", "model.blocks=12", "moe.experts=8", "parallel.replicas=2", set})
		expect.OK(t, err)
		few, err := NewFew(c)
		expect.OK(t, err)
		if _, err := moe.Fewer(few.Config, 3); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
		_, err = moe.Fewer(few.Config, 4)
		expect.OK(t, err)
	}
}
