package study

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// dense returns the table of a model of the given number of blocks, whole or in halves.
func dense(blocks int, halves bool) cost.Table {
	var t cost.Table
	add := func(name string, seconds float64, n int64) {
		t.Layers = append(t.Layers, cost.Layer{
			Name: name, Forward: seconds, BackwardInput: seconds, BackwardWeight: seconds, NonZeros: n, Output: 4000,
			Bytes: cost.Bytes{Parameters: 4 * n, Gradients: 4 * n, Optimizer: 8 * n, Workspace: 100, Activations: 10_000, Held: 2_000},
		})
	}
	add("embedding", 0.1, 5000)
	for b := range blocks {
		if halves {
			add(fmt.Sprintf("block.%d.attention", b), 0.4, 4000)
			add(fmt.Sprintf("block.%d.mlp", b), 0.6, 8000)
		} else {
			add(fmt.Sprintf("block.%d", b), 1, 12000)
		}
	}
	add("head", 2, 5000)
	return t
}

// kinds that Generate knows, with a run of each.
var studies = []struct {
	kind  string
	steps int
	o     dynamic.MadeUp
}{
	{"prune", 700, dynamic.MadeUp{Start: 100, Every: 100}},
	{"freeze", 700, dynamic.MadeUp{Start: 100, Every: 1}},
	{"moe", 20, dynamic.MadeUp{Start: 3, Microbatches: 4}},
	{"attention", 20, dynamic.MadeUp{Start: 3}},
	{"exit", 700, dynamic.MadeUp{Start: 100, Microbatches: 4}},
	{"mod", 20, dynamic.MadeUp{Start: 3, Microbatches: 4}},
}

// TestGenerated: what holds for every kind. A series starts dense and goes over
// all steps; phases beside each other differ; nothing costs more than dense
// but an MLP of experts, and a block at an exit, where the head's work is done; equal arguments give equal series, and the seed
// matters; a file of it reads back.
func TestGenerated(t *testing.T) {
	for _, halves := range []bool{false, true} {
		model := dense(12, halves)
		for _, s := range studies {
			t.Run(fmt.Sprintf("%s, halves %v", s.kind, halves), func(t *testing.T) {
				series := generate(t, s.kind, model, s.steps, s.o)
				if !reflect.DeepEqual(series, generate(t, s.kind, model, s.steps, s.o)) {
					t.Error("equal arguments give other series")
				}
				c := assumed(s.o)
				c.Run.Seed = 2
				other, err := Generate(s.kind, model, &Options{Config: c}, of(s.o, s.steps), 1)
				expect.OK(t, err)
				if reflect.DeepEqual(series, other) != (s.kind == "prune") {
					t.Error("the seed does not decide the draws")
				}
				if first := series[0]; !reflect.DeepEqual(first.Layers, model.Layers) || first.Scale != nil || first.Steps < s.o.Start {
					t.Errorf("the first %d steps are not dense", s.o.Start)
				}
				if last := series[len(series)-1]; last.Step+last.Steps != s.steps || len(series) < 4 {
					t.Errorf("%d phases, to step %d, want %d", len(series), last.Step+last.Steps, s.steps)
				}
				var file bytes.Buffer
				for i, x := range series {
					if i > 0 && (x.Change != s.kind || same(x, series[i-1])) {
						t.Fatalf("phase %d: change %q, and the one before is the same: %v", i, x.Change, same(x, series[i-1]))
					}
					seconds, dense := 0.0, 0.0
					for l, layer := range x.Layers {
						d := model.Layers[l]
						seconds, dense = seconds+layer.Seconds(), dense+d.Seconds()
						if s.kind != "exit" && layer.Seconds() > d.Seconds() || layer.Bytes.Static() > d.Bytes.Static() || layer.NonZeros > d.NonZeros {
							t.Fatalf("phase %d: layer %d costs %+v, dense %+v", i, l, layer, d)
						}
					}
					if seconds > dense {
						t.Fatalf("phase %d: all layers take %v s, dense %v", i, seconds, dense)
					}
					expect.OK(t, json.NewEncoder(&file).Encode(x))
					series[i].Routed = nil // no file has it
				}
				if back, err := record.ReadSeries("costs", &file, len(model.Layers)); err != nil || !reflect.DeepEqual(back.Costs(), series) {
					t.Errorf("it does not read back: %v", err)
				}
			})
		}
	}
}

// of returns a run with the given number of steps.
func of(run dynamic.MadeUp, steps int) dynamic.MadeUp {
	run.Steps = steps
	return run
}

// assumed returns settings of a run: the paper's share of attention, 1/7 of a block, and
// CSR from where it is faster there.
func assumed(run dynamic.MadeUp) config.Config {
	c := config.Default()
	c.Parallel.Microbatches = run.Microbatches
	c.Assign("prune.csr_from", "0.75")
	c.Model.Sequence, c.Model.Hidden = 2048, 1024
	if run.Attention > 0 {
		c.Simulate.Attention = run.Attention
	}
	return c
}

func generate(t *testing.T, kind string, model cost.Table, steps int, o dynamic.MadeUp) cost.Series {
	t.Helper()
	options := Options{Config: assumed(o)}
	series, err := Generate(kind, model, &options, of(o, steps), 1)
	expect.OK(t, err)
	if options.Sampling != (Sampling{}) {
		t.Errorf("%s: sampled, %+v", kind, options.Sampling)
	}
	return series
}

func same(a, b cost.Phase) bool {
	return reflect.DeepEqual(a.Layers, b.Layers) && reflect.DeepEqual(a.Scale, b.Scale)
}

// TestPruneFollowsTheSchedule: sparsities of the whole model are those that
// Zhu & Gupta's formula gives, later blocks lose more, and what CSR saves is
// the crossover's.
func TestPruneFollowsTheSchedule(t *testing.T) {
	model := dense(12, false)
	series := generate(t, "prune", model, 700, dynamic.MadeUp{Start: 100, Every: 100})
	want := []float64{0, 0.5203125, 0.7875, 0.8859375, 0.9} // S_f = 0.9, n = 4
	steps := []int{0, 200, 300, 400, 500}                   // at step 0 nothing is pruned yet
	if len(series) != len(want) {
		t.Fatalf("%d phases, want %d", len(series), len(want))
	}
	for i, x := range series {
		left := 0.0
		for l := 1; l <= 12; l++ {
			layer := x.Layers[l]
			kept := float64(layer.NonZeros) / 12000
			left += kept / 12
			if i > 0 && l > 1 && layer.NonZeros >= x.Layers[l-1].NonZeros {
				t.Errorf("phase %d: block %d keeps %d, the one before %d", i, l-1, layer.NonZeros, x.Layers[l-1].NonZeros)
			}
			factor, memory := 1.0, 1.0
			if kept < 0.25 {
				factor, memory = 1.0/7+6.0/7*kept*4, 2*kept
			}
			if math.Abs(layer.Forward-factor) > 1e-3 || math.Abs(float64(layer.Bytes.Parameters)/48000-memory) > 1e-3 {
				t.Errorf("phase %d: block %d keeps %v and takes %v s, %d bytes, want %v s", i, l-1, kept, layer.Forward, layer.Bytes.Parameters, factor)
			}
		}
		if x.Step != steps[i] || math.Abs(1-left-want[i]) > 1e-4 { // numbers of weights are whole
			t.Errorf("phase %d: from step %d on sparsity %v, want %d and %v", i, x.Step, 1-left, steps[i], want[i])
		}
		if x.Layers[0] != model.Layers[0] || x.Layers[13] != model.Layers[13] {
			t.Errorf("phase %d: embedding or head changed", i)
		}
	}
}

// TestPruneByDefault: every tenth of the run, so that a short run is pruned too.
func TestPruneByDefault(t *testing.T) {
	series := generate(t, "prune", dense(12, false), 1000, dynamic.MadeUp{Start: 300})
	var steps []int
	for _, x := range series {
		steps = append(steps, x.Step)
	}
	if want := []int{0, 400, 500, 600, 700}; !reflect.DeepEqual(steps, want) {
		t.Errorf("changes at %v, want %v", steps, want)
	}
}

// TestFreezeKeepsForwards: a prefix of whole blocks is frozen, embedding
// included; without a thaw it grows to two thirds of them; it pays its forwards and no
// more.
func TestFreezeKeepsForwards(t *testing.T) {
	for _, halves := range []bool{false, true} {
		model, run := dense(12, halves), dynamic.MadeUp{Start: 100, Every: 10}
		c := assumed(run)
		c.Assign("simulate.frozen", 0.6667, "simulate.thaws", false)
		series, err := Generate("freeze", model, &Options{Config: c}, of(run, 2000), 1)
		expect.OK(t, err)
		before := 0
		for i, x := range series {
			frozen := 0
			for x.Layers[frozen].BackwardWeight == 0 {
				frozen++
			}
			for l, layer := range x.Layers {
				want := model.Layers[l]
				if l < frozen {
					want.BackwardInput, want.BackwardWeight, want.Bytes.Gradients = 0, 0, 0
				}
				if layer != want {
					t.Errorf("phase %d, %d layers frozen: layer %d is %+v, want %+v", i, frozen, l, layer, want)
				}
			}
			if i > 0 && (frozen <= before || halves && frozen%2 == 0 || x.Step < 100 || x.Step%10 != 0) {
				t.Errorf("step %d: %d layers frozen, %d before", x.Step, frozen, before)
			}
			before = frozen
		}
		want := 9 // embedding and 8 of 12 blocks
		if halves {
			want = 17
		}
		if before != want {
			t.Errorf("at the end %d layers are frozen, want %d", before, want)
		}
	}
}

// TestExitThinsTokens: behind every quarter of the blocks tokens leave, more over the
// run, to a fifth before the last block; messages and activations fall with them, and
// microbatches vary about them.
func TestExitThinsTokens(t *testing.T) {
	model := dense(12, false)
	series := generate(t, "exit", model, 701, dynamic.MadeUp{Start: 100, Every: 100, Microbatches: 4})
	for i, x := range series {
		progress := 0.8 * float64(max(0, x.Step-100)) / 600
		for l := 1; l <= 12; l++ {
			layer, left := x.Layers[l], 1-progress/3*float64((l-1)/3)
			next, seconds := left, left
			if l%3 == 0 && l < 12 {
				next -= progress / 3
				seconds += 2 * progress / 3 // of the head's two
			}
			if math.Abs(layer.Forward-seconds) > 1e-12 {
				t.Errorf("phase %d: block %d takes %v s, want %v", i, l-1, layer.Forward, seconds)
			}
			if math.Abs(float64(layer.Bytes.Activations)-10_000*(left+left-next)) > 1.5 {
				t.Errorf("phase %d: block %d keeps %d bytes of %v of the tokens", i, l-1, layer.Bytes.Activations, left)
			}
			if math.Abs(float64(layer.Output)-4000*next) > 0.5 {
				t.Errorf("phase %d: block %d sends %d bytes of %v of the tokens", i, l-1, layer.Output, next)
			}
		}
		if varies := x.Scale != nil && x.Scale[8][0] != x.Scale[8][1] && x.Scale[8][0] == x.Scale[7][0]; varies != (progress > 0) {
			t.Errorf("phase %d: microbatches take %v times their seconds", i, x.Scale)
		}
		if x.Scale != nil && x.Scale[2][1] != 1 {
			t.Errorf("phase %d: microbatches vary before the first exit: %v", i, x.Scale[2])
		}
	}
}

// TestExitNeedsBlocks: a model too short for an exit stays dense.
func TestExitNeedsBlocks(t *testing.T) {
	if series := generate(t, "exit", dense(1, false), 100, dynamic.MadeUp{Every: 10, Microbatches: 4}); len(series) != 1 {
		t.Errorf("%d phases, want 1", len(series))
	}
}

// TestRoutedMicrobatches: means of what experts, mixture of depths and sparse
// attention make of a layer.
func TestRoutedMicrobatches(t *testing.T) {
	model := dense(12, true)
	o := dynamic.MadeUp{Microbatches: 8}
	mean := func(series cost.Series, from, every int) float64 {
		sum, n := 0.0, 0
		for _, x := range series {
			for l := from; l < 25; l += every {
				for _, f := range x.Scale[l] {
					sum, n = sum+f, n+1
				}
			}
		}
		return sum / float64(n)
	}
	moe := generate(t, "moe", model, 200, o)
	if got := mean(moe, 2, 2); math.Abs(got-1.3) > 0.02 {
		t.Errorf("the fullest rank has %v times the mean, want 1.3 as recorded", got)
	}
	if got := mean(moe, 1, 2); got != 1 {
		t.Errorf("attention takes %v times its seconds", got)
	}
	mod := generate(t, "mod", model, 200, o)
	for half := range 2 { // blocks 1, 3, …: layers 3 and 4, 7 and 8, …
		if got := mean(mod, 3+half, 4); math.Abs(got-0.112) > 0.002 {
			t.Errorf("every second block has %v of the tokens, want 0.112", got)
		}
		if got := mean(mod, 1+half, 4); got != 1 {
			t.Errorf("the others have %v of the tokens", got)
		}
	}
	x := mod[7].Scale
	if !reflect.DeepEqual(x[3], x[4]) || reflect.DeepEqual(x[3], x[7]) || x[3][0] == x[3][1] {
		t.Errorf("both halves of a block take the same tokens, every block and microbatch its own: %v, %v, %v", x[3], x[4], x[7])
	}
	for _, s := range generate(t, "attention", model, 50, dynamic.MadeUp{}) {
		for l, layer := range s.Layers[1:25] {
			// 1/7 of a block is scores, 2/7 attention's matrices: a third.
			if f := layer.Seconds() / model.Layers[l+1].Seconds(); l%2 == 1 && f != 1 || f < 2.0/3 {
				t.Fatalf("layer %d takes %v of its seconds", l+1, f)
			}
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	model, strange := dense(2, false), dense(2, false)
	strange.Layers[1].Name = "block.x"
	for _, tc := range []struct {
		name, kind string
		table      cost.Table
		steps      int
		o          dynamic.MadeUp
		want       string
	}{
		{"unknown", "magic", model, 10, dynamic.MadeUp{}, `dynamism "magic": unknown, wanted ` + Dynamisms()},
		{"no steps", "prune", model, 0, dynamic.MadeUp{}, "steps: 0, wanted at least 1"},
		{"early", "prune", model, 10, dynamic.MadeUp{Start: -1}, "changes from step -1 on every 1 steps, wanted at least 0 and 1"},
		{"all attention", "attention", model, 10, dynamic.MadeUp{Attention: 1}, "share of attention: 1, wanted between 0 and 1"},
		{"no microbatches", "moe", model, 10, dynamic.MadeUp{}, "microbatches: 0, wanted at least 1 for moe"},
		{"no blocks", "freeze", cost.Table{Layers: make([]cost.Layer, 3)}, 10, dynamic.MadeUp{}, "layers: none of 3 is called block.0, block.1, …"},
		{"a strange block", "freeze", strange, 10, dynamic.MadeUp{}, `layer "block.x": wanted the number of its block, as in block.3, of 4 layers`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Generate(tc.kind, tc.table, &Options{Config: assumed(tc.o)}, of(tc.o, tc.steps), 1); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	strange.Layers[1].Name = "block.4"
	if _, err := Generate("exit", strange, &Options{Config: config.Default()}, dynamic.MadeUp{Steps: 10}, 1); err == nil || !strings.Contains(err.Error(), "of 4 layers") {
		t.Errorf("error %v", err)
	}
	strange.Layers[1].Name = "block.1.norm"
	if _, err := Generate("exit", strange, &Options{Config: config.Default()}, dynamic.MadeUp{Steps: 10}, 1); err == nil || !strings.Contains(err.Error(), "block.1.mlp") {
		t.Errorf("error %v", err)
	}
}
