package experts

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic/routing"
	"dynmo/src/expect"
	"dynmo/src/plan/search"
)

// blocks of the models of these tests.
const blocks = 8

// costsOf returns costs of a model whose attention takes 1 s, the experts of a block 3 s
// and the head 4 s.
func costsOf(t *testing.T, sets ...string) cost.Phase {
	t.Helper()
	c, err := config.Load("", append([]string{
		"model.family=llama", "model.blocks=8", "model.hidden=16", "model.heads=2", "model.sequence=8", "model.grain=half", "dynamic.kind=moe",
	}, sets...))
	expect.OK(t, err)
	p := cost.Phase{Model: search.Shape(c), Table: search.Dense(c)}
	for i, l := range p.Layers {
		seconds := 0.0
		switch {
		case strings.HasSuffix(l.Name, "attention"):
			seconds = 1. / 3
		case strings.HasSuffix(l.Name, "mlp"):
			seconds = 1
		case l.Name == "head":
			seconds = 4. / 3
		}
		p.Layers[i] = l.With(cost.Stage{Forward: seconds, Input: seconds, Weight: seconds})
	}
	return p
}

// recorded returns loads of 8 experts, top 2, in which expert e of block b has so many
// tokens of 8.
func recorded(t *testing.T, name string, tokens func(block, slot, expert int) int64) routing.Recording {
	t.Helper()
	r, err := routing.New(routing.Recording{Name: name, Experts: 8, Top: 2, Blocks: blocks, Slots: 64, Replicas: 8, Tokens: 32})
	expect.OK(t, err)
	for block := range blocks {
		for slot := range 64 {
			loads := make([]int64, 8)
			for e := range loads {
				loads[e] = tokens(block, slot, e)
			}
			expect.OK(t, r.Add(block, slot, loads))
		}
	}
	return r
}

func rows(t *testing.T, r routing.Recording, o Options) map[string]Row {
	t.Helper()
	k, err := NewCase(r, costsOf(t), o)
	expect.OK(t, err)
	table, err := k.Table()
	expect.OK(t, err)
	list := make(map[string]Row)
	for _, row := range table.Rows {
		cuts, _, _ := strings.Cut(row.Cuts, ",")
		list[fmt.Sprint(row.Way, "; ", cuts)] = row
	}
	return list
}

// TestEqualLoads: where loads are equal no way is better than another, and layers that
// move make up for the head alone.
func TestEqualLoads(t *testing.T) {
	k := recorded(t, "mixtral-8-aux", func(int, int, int) int64 { return 8 })
	list := rows(t, k, Options{4, 1})
	for _, cuts := range []string{"best static", "partition by time"} {
		want := list["equal loads; "+cuts].Step
		for _, w := range Ways {
			if got, ok := list[fmt.Sprint(w, "; ", cuts)]; ok && math.Abs(got.Step-want) > 1e-9 {
				t.Errorf("%v, %s: %v s, want %v", w, cuts, got.Step, want)
			}
		}
	}
	if static, moved := list["equal loads; best static"].Step, list["equal loads; partition by time"].Step; moved > static*(1+1e-9) {
		t.Errorf("%v s with layers that move, %v s without", moved, static)
	}
}

// TestWays: two full experts lie on one rank; placed apart they cost half, and more experts
// on a rank help where one expert is full. A fixed capacity is that of the fullest block
// for all of them.
func TestWays(t *testing.T) {
	pair := recorded(t, "mixtral-8-aux", func(block, _, e int) int64 {
		if block < blocks/2 {
			return 8
		}
		return map[bool]int64{true: 20, false: 4}[e < 2]
	})
	k, err := NewCase(pair, costsOf(t), Options{4, 1})
	expect.OK(t, err)
	if mean, least, most := k.Spread(); mean != (1+2.5)/2 || least != 1 || most != 2.5 {
		t.Errorf("spread %v, %v to %v", mean, least, most)
	}
	of := func(w Way, block int) float64 { return k.series(w)[5].Factors[2*block+2][3].Forward }
	for w, want := range map[Way][2]float64{Equal: {1, 1}, Fixed: {2.5, 2.5}, Adapted: {1, 2.5}, Placed: {1, 1.5}, Free: {1, 1.25}} {
		if got := [2]float64{of(w, 0), of(w, blocks-1)}; math.Abs(got[0]-want[0]) > 1e-6 || math.Abs(got[1]-want[1]) > 1e-6 {
			t.Errorf("%v: %v, want %v", w, got, want)
		}
	}
	list := rows(t, pair, Options{4, 1})
	static, moved := list["adapted capacity; best static"], list["adapted capacity; partition by time"]
	if moved.Step > 0.9*static.Step || moved.Moves == 0 || moved.Bubble > static.Bubble || moved.Step > static.Step/static.Possible*1.1 || static.Possible > static.Ceiling {
		t.Errorf("moved %+v, static %+v", moved, static)
	}
	both := list["placed, as many each; partition by time"].Step
	if placed := list["placed, as many each; best static"].Step; !(both < moved.Step && both < placed && placed < static.Step) {
		t.Errorf("static %v, placed %v, moved %v, both %v", static.Step, placed, moved.Step, both)
	}
	if fast := rows(t, pair, Options{4, 100})["adapted capacity; partition by time"]; fast.Step > moved.Step/50 || fast.Overhead <= moved.Overhead {
		t.Errorf("100 times faster: %+v, beside %+v", fast, moved)
	}
}

// TestDepths: with a mixture of depths every second block is one layer and takes the tokens
// that were recorded.
func TestDepths(t *testing.T) {
	r := recorded(t, "mixtral-8-aux-mod", func(block, _, _ int) int64 { return int64(8 >> (block % 2)) })
	k, err := NewCase(r, costsOf(t), Options{8, 1})
	expect.OK(t, err)
	// embedding, block.0.attention, block.0.mlp, block.1
	phase := k.series(Adapted)[0]
	if got := phase.Factors[3][0]; phase.Layers[3].Name != "block.1" || math.Abs(got.Forward-0.5) > 1e-9 || len(phase.Factors[1]) != 0 {
		t.Errorf("%s: %v, want half of block.1", phase.Layers[3].Name, got)
	}
	if got := phase.Layers[3].Forward; math.Abs(got-4./3) > 1e-3 {
		t.Errorf("block.1 takes %v s, want attention and experts", got)
	}
}

func TestNewCaseRefuses(t *testing.T) {
	r := recorded(t, "mixtral-8-aux", func(int, int, int) int64 { return 8 })
	for want, c := range map[string]struct {
		sets     []string
		replicas int
	}{
		"3 replicas: want a divisor of the 8 experts":            {nil, 3},
		"want those of model.grain=half moe.experts=8 moe.top=2": {[]string{"model.grain=block"}, 4},
	} {
		if _, err := NewCase(r, costsOf(t, c.sets...), Options{c.replicas, 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
