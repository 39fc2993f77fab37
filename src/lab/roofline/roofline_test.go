package roofline

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/tensor"
)

// small returns the settings of a small model for GPUs, changed by sets.
func small(t *testing.T, sets ...string) config.Config {
	t.Helper()
	c, err := config.Load("", append([]string{"model.blocks=6", "model.hidden=512", "model.heads=8", "model.sequence=1024", "model.vocab=2048",
		"parallel.stages=1", "parallel.microbatch_size=1", "device.kind=cuda"}, sets...))
	expect.OK(t, err)
	return c
}

// costs returns what the model of the settings costs on a GPU.
func costs(t *testing.T, gpu string, sets ...string) cost.Table {
	t.Helper()
	g, err := Known(gpu)
	expect.OK(t, err)
	table, err := Costs(small(t, sets...), g)
	expect.OK(t, err)
	return table
}

// TestSeconds: a product is bound by its operations or by its bytes, and attention by its
// exponentials where heads are small.
func TestSeconds(t *testing.T) {
	h100, err := Known("h100")
	expect.OK(t, err)
	var got kernel.Call
	k := null.NewFused(tensor.BF16, device.NewKnown(), func(c *kernel.Call) float64 { got = *c; return 0 })
	mem := func(d tensor.DType, n int) tensor.Mem {
		return tensor.Mem{Ptr: tensor.From([]byte{0}).Ptr, Bytes: int64(n) * d.Size(), Space: tensor.Host}
	}
	const n, c, o, b, heads = 4096, 1024, 3072, 2, 32
	for _, test := range []struct {
		name string
		call func()
		want float64
	}{
		{"operations", func() {
			k.MatmulForward(nil, mem(tensor.BF16, n*o), mem(tensor.BF16, n*c), mem(tensor.BF16, o*c), tensor.Mem{}, n, c, o)
		}, 2 * n * c * o / (989.4e12 * 0.70)},
		{"bytes", func() {
			k.MatmulForward(nil, mem(tensor.BF16, 8*o), mem(tensor.BF16, 8*c), mem(tensor.BF16, o*c), tensor.Mem{}, 8, c, o)
		}, 2 * (8*o + 8*c + o*c) / (3.35e12 * 0.85)},
		{"what is changed moves twice", func() {
			k.AdamW(nil, mem(tensor.BF16, n), mem(tensor.F32, n), mem(tensor.F32, n), mem(tensor.F32, n), mem(tensor.F32, n), n, kernel.AdamW{Step: 1})
		}, n * (2*2 + 3*2*4 + 4) / (3.35e12 * 0.85)},
		{"exponentials", func() {
			k.AttentionForward(nil, mem(tensor.BF16, n*c), mem(tensor.F32, heads*n), mem(tensor.BF16, 3*n*c), mem(tensor.I32, b+1), b, n/b, n, c, heads, heads)
		}, heads * n * n / b / 2 / (3.87e12 * 0.50)},
	} {
		test.call()
		if seconds := h100.Seconds(&got, tensor.BF16); math.Abs(seconds-test.want-launch) > 1e-9*test.want {
			t.Errorf("%s: %s takes %g s, want %g and %g to start", test.name, got.Op, seconds, test.want, launch)
		}
	}
}

// TestCosts: the table of one model, as it was on the day it was reviewed.
func TestCosts(t *testing.T) {
	var b strings.Builder
	for _, gpu := range Names() {
		table := costs(t, gpu, "device.precision="+map[bool]string{true: "f32", false: "bf16"}[gpu == "h100-paper"])
		fmt.Fprintf(&b, "%s, dispatch %g\n", table.Source(), table.Dispatch)
		for _, l := range []cost.Layer{table.Layers[0], table.Layers[1], table.Layers[7]} {
			fmt.Fprintf(&b, "%-10s forward %.4g, input %.4g, weight %.4g; output %d, %+v\n", l.Name, l.Forward*1e6, l.BackwardInput*1e6, l.BackwardWeight*1e6, l.Output, l.Bytes)
		}
	}
	expect.Golden(t, "testdata/costs.txt", b.String())
}

// TestCostsGrow: wider models, longer sequences and slower GPUs take longer, layer by layer.
func TestCostsGrow(t *testing.T) {
	base := costs(t, "h100")
	for name, other := range map[string]cost.Table{
		"wider": costs(t, "h100", "model.hidden=1024"), "longer": costs(t, "h100", "model.sequence=2048"),
		"more": costs(t, "h100", "parallel.microbatch_size=2"), "slower": costs(t, "a100"),
	} {
		for l, layer := range base.Layers {
			if other.Layers[l].Seconds() <= layer.Seconds() {
				t.Errorf("%s: %s takes %g s, and %g s at first", name, layer.Name, other.Layers[l].Seconds(), layer.Seconds())
			}
		}
	}
}

// TestPaper: a block on h100-paper takes as long, and keeps as many bytes, as table 1 asks for.
// Other precisions are refused.
func TestPaper(t *testing.T) {
	sets := []string{"model.hidden=1024", "model.heads=32", "model.sequence=2048", "parallel.microbatch_size=2"}
	block := costs(t, "h100-paper", append(sets, "device.precision=f32")...).Layers[1]
	if a, want := block.Bytes.Activations, int64(34*2048*2*1024+5*32*2048*2048*2); a != want {
		t.Errorf("a block keeps %d bytes, want %d", a, want)
	}
	if ms := block.Seconds() / 2 * 1e3; ms < 5.3 || ms > 7.1 {
		t.Errorf("a block takes %.2f ms for a sequence, the paper's 5.3 to 7.1", ms)
	}
	g, err := Known("h100-paper")
	expect.OK(t, err)
	share, err := AttentionShare(small(t, append(sets, "device.precision=f32")...), g)
	expect.OK(t, err)
	if share < 0.3 || share > 0.6 {
		t.Errorf("attention over stored scores takes %.2f of a block", share)
	}
	if _, err := Costs(small(t), g); err == nil || !strings.Contains(err.Error(), `device.precision = "bf16", want "gpt2" and "f32"`) {
		t.Errorf("error %v", err)
	}
}

// TestCostsOfKinds: every kind of dynamism that changes the chain has costs, and blocks
// take as much less as they should.
func TestCostsOfKinds(t *testing.T) {
	const long = "model.sequence=2048" // scores take longer than the hash
	dense := costs(t, "h100", long)
	for _, c := range []struct {
		kind, layer string
		sets        []string
		less        bool
	}{
		{"attention", "block.3", []string{"attention.buckets=8"}, true},
		{"mod", "block.3", []string{"mod.capacity=0.125"}, true},
		{"exit", "block.3", nil, false},
		{"moe", "block.3", []string{"model.family=llama", "moe.experts=4"}, false},
	} {
		t.Run(c.kind, func(t *testing.T) {
			table := costs(t, "h100", append(c.sets, long, "dynamic.kind="+c.kind)...)
			find := func(t cost.Table) float64 {
				for _, l := range t.Layers {
					if l.Name == c.layer {
						return l.Seconds()
					}
				}
				return 0
			}
			if got, all := find(table), find(dense); got <= 0 || (got < 0.99*all) != c.less {
				t.Errorf("%s takes %g s, in the dense model %g", c.layer, got, all)
			}
		})
	}
}

// TestCostsOfPredictor: a block whose predictor takes an eighth of the tokens costs more than
// an eighth of a whole one: it routes all of them.
func TestCostsOfPredictor(t *testing.T) {
	layers := costs(t, "h100", "dynamic.kind=mod", "mod.route=predictor", "mod.capacity=0.125").Layers
	whole, routed := layers[1].Seconds(), layers[2].Seconds()
	if routed < 1.05*whole/8 || routed > whole {
		t.Errorf("a routed block takes %g s, a whole one %g", routed, whole)
	}
}

// TestCostsOfGroups: groups of a block's experts share its tokens out: each takes as long as
// the others, and all together hardly longer than the experts in one layer.
func TestCostsOfGroups(t *testing.T) {
	sets := []string{"model.blocks=1", "model.hidden=1024", "model.sequence=4096", "model.family=llama", "dynamic.kind=moe", "moe.experts=8"}
	one := costs(t, "h100", append(sets, "model.grain=half")...).Layers[2]
	groups := costs(t, "h100", append(sets, "model.grain=expert", "moe.groups=4")...).Layers[2:6]
	sum := 0.0
	for _, g := range groups {
		sum += g.Seconds()
		if share := g.Seconds() / groups[1].Seconds(); math.Abs(share-1) > 0.35 {
			t.Errorf("%s takes %.2f times as long as %s", g.Name, share, groups[1].Name)
		}
	}
	if more := sum / one.Seconds(); more < 1 || more > 1.6 {
		t.Errorf("groups take %.2f times as long as all experts", more)
	}
}

func TestCostsAreRefused(t *testing.T) {
	if _, err := Known("h200"); err == nil || err.Error() != `no rates of a GPU "h200": want one of a100, h100, h100-paper` {
		t.Errorf("error %v", err)
	}
}

// TestCostsOfSharedPieces: experts that two replicas share out take what all of them take on
// one, in half of the memory, and exchange rows.
func TestCostsOfSharedPieces(t *testing.T) {
	sets := []string{"dynamic.kind=moe", "model.family=llama", "parallel.replicas=2"}
	local, err := Costs(small(t, sets...), gpus[0])
	expect.OK(t, err)
	shared, err := Costs(small(t, append(sets, "parallel.experts=spread")...), gpus[0])
	expect.OK(t, err)
	for l, layer := range shared.Layers {
		if layer.Seconds() != local.Layers[l].Seconds() {
			t.Errorf("%s: %v seconds, want %v", layer.Name, layer.Seconds(), local.Layers[l].Seconds())
		}
		if block := strings.HasPrefix(layer.Name, "block."); block != (layer.Rows > 0) || block != (layer.Bytes.Parameters < local.Layers[l].Bytes.Parameters) {
			t.Errorf("%s: %d bytes of rows, %d bytes of parameters, %d where replicas have all", layer.Name, layer.Rows, layer.Bytes.Parameters, local.Layers[l].Bytes.Parameters)
		}
	}
}

// TestCostsTakeNoMemory: layers of Mixtral 8x7B, 26 GB a block with moments and gradients,
// are estimated within 256 MB of the host's.
func TestCostsTakeNoMemory(t *testing.T) {
	c, err := config.Load("../../../jobs/paper/mixtral-8x7b.toml", nil)
	expect.OK(t, err)
	c.Parallel.Stages = 1
	g, err := Known("h100")
	expect.OK(t, err)
	var before, after unix.Rusage
	expect.OK(t, unix.Getrusage(unix.RUSAGE_SELF, &before))
	table, err := Costs(c, g)
	expect.OK(t, err)
	expect.OK(t, unix.Getrusage(unix.RUSAGE_SELF, &after))
	if grown := (after.Maxrss - before.Maxrss) << 10; grown > 256<<20 {
		t.Errorf("%d bytes of the host's memory", grown)
	}
	block := table.Layers[2].Bytes.Static()
	if block < 20e9 {
		t.Errorf("a block's experts take %d bytes, want those of Mixtral's", block)
	}
}
