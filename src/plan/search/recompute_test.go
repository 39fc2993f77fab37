package search

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// timed returns the dense chain of settings, every layer of 1, 1 and 1 seconds.
func timed(c config.Config) cost.Table {
	t := Dense(c)
	t.Clock = "sim"
	for l := range t.Layers {
		t.Layers[l] = t.Layers[l].WithSeconds(cost.Stage{Forward: 1, Input: 1, Weight: 1})
	}
	return t
}

// recomputing returns settings of a chain whose blocks are worth computing twice.
func recomputing(kind schedule.Kind) config.Config {
	c := plantest.Settings(kind, 12, 3, 6)
	c.Model.Hidden, c.Model.Sequence, c.Parallel.MicrobatchSize = 32, 256, 2
	return c
}

// need returns what the stage that needs most does, in the layout of the shortest step.
func need(t *testing.T, c config.Config) (int64, Plan) {
	t.Helper()
	p, err := Configured(c)
	expect.OK(t, err)
	plain := c
	plain.Model.Recompute = "none"
	costs := timed(plain)
	if c.Model.Recompute != "plan" {
		costs, _ = Suit(costs, Shape(plain), c)
	}
	l, err := begin(p, costs).BestLayout()
	expect.OK(t, err)
	plan, err := p.Simulate(cost.Phase{Table: costs}, l, 0)
	expect.OK(t, err)
	return slices.Max(plan.Bytes), plan
}

// TestPlannedTwice: a memory limit lies between the needs with and without recomputation of all
// blocks. A plan keeps to the limit, and is no slower than with recomputation of all blocks. If
// backwards are not split, only as many layers recompute as the limit demands.
func TestPlannedTwice(t *testing.T) {
	for _, kind := range []schedule.Kind{"1f1b", "gpipe", "zb-h1", "interleaved", "zb-v", "list", "auto"} {
		c := recomputing(kind)
		most, without := need(t, c)
		c.Model.Recompute = "block"
		least, with := need(t, c)
		if kind == "1f1b" && least >= most {
			t.Fatalf("%d bytes with everything computed twice, %d without", least, most)
		}
		if c.Balance.MemoryLimitBytes = (least + most) / 2; least > most {
			c.Balance.MemoryLimitBytes = most
		}
		c.Model.Recompute = "plan"
		bytes, plan := need(t, c)
		if bytes > c.Balance.MemoryLimitBytes || plan.TwiceGap != 0 {
			t.Errorf("%s: %d bytes of %d, %v above the least", kind, bytes, c.Balance.MemoryLimitBytes, plan.TwiceGap)
		}
		if plan.Seconds > with.Seconds*(1+leastImprovement) && least <= c.Balance.MemoryLimitBytes {
			t.Errorf("%s: %v s, %v where all blocks compute twice, %v where none does", kind, plan.Seconds, with.Seconds, without.Seconds)
		}
		if kind == "1f1b" && (len(plan.Twice) == 0 || len(plan.Twice) == 10) {
			t.Errorf("%s: layers %v compute twice", kind, plan.Twice)
		}
	}
}

// TestLimitNamesRecompute: the error of a limit that is too small names what is computed twice, and
// moments that replicas share out, among what would do.
func TestLimitNamesRecompute(t *testing.T) {
	c := recomputing("1f1b")
	c.Parallel.Replicas, c.Parallel.MicrobatchSize = 2, 1
	p, err := Configured(c)
	expect.OK(t, err)
	least, err := begin(p, timed(c)).leastLimit()
	expect.OK(t, err)
	c.Balance.MemoryLimitBytes = least - 1
	p, err = Configured(c)
	expect.OK(t, err)
	_, err = begin(p, timed(c)).FirstLayout()
	if err == nil || !strings.Contains(err.Error(), `or model.recompute = "plan"`) || !strings.Contains(err.Error(), `or optimizer.shard = true and model.recompute = "plan"`) {
		t.Errorf("error %v", err)
	}
}

// TestSuit: the costs of one setting of model.recompute are those of another, there and back.
func TestSuit(t *testing.T) {
	c := recomputing("1f1b")
	plain := timed(c)
	for _, was := range []string{"attention", "block", "plan"} {
		twice := c
		twice.Model.Recompute = was
		there, shape := Suit(plain, Shape(c), twice)
		if shape != Shape(twice) || was == "block" && there.Layers[1].BackwardInput != 2 || was != "plan" && there.Layers[1].Bytes.Recomputed == 0 {
			t.Errorf("%s: %q, %+v", was, shape, there.Layers[1])
		}
		if back, shape := Suit(there, shape, c); shape != Shape(c) || !back.Equal(plain) {
			t.Errorf("%s: back %q, %+v, want %+v", was, shape, back.Layers[1], plain.Layers[1])
		}
	}
	other := c
	other.Model.Blocks++
	if _, shape := Suit(plain, Shape(c), other); shape != Shape(c) {
		t.Errorf("costs of another model became %q", shape)
	}
}

// TestSuitSlices: costs measured with some settings of optimizer.shard and replicas convert to
// those of any other. The test covers float32 and bfloat16, a borrowed head, and layers pruned to
// CSR. A replica's own parameters are not sliced.
func TestSuitSlices(t *testing.T) {
	for _, device := range []string{"cpu", "cuda"} {
		c := recomputing("1f1b")
		c.Device.Kind, c.Model.Tied, c.Model.Hidden = device, true, 192
		var settings []config.Config
		for _, replicas := range []int{1, 2, 3, 8} {
			for _, shard := range []bool{false, true} {
				c.Parallel.Replicas, c.Optimizer.Shard = replicas, shard
				settings = append(settings, c)
			}
		}
		for _, from := range settings {
			for _, to := range settings {
				got, shape := Suit(timed(from), Shape(from), to)
				if want := timed(to); shape != Shape(to) || !got.Equal(want) {
					t.Errorf("%s: from %d replicas, shard %v, to %d, %v: %+v, want %+v", device, from.Parallel.Replicas, from.Optimizer.Shard,
						to.Parallel.Replicas, to.Optimizer.Shard, got.Layers[1].Bytes, want.Layers[1].Bytes)
				}
			}
		}
	}
	c := recomputing("1f1b")
	pruned := timed(c)
	const n, own = 5*4096*4 + 40, 4096 * 4
	pruned.Layers[2].Bytes.Gradients, pruned.Layers[2].Bytes.Own, pruned.Layers[2].Bytes.Optimizer = n+own, own, 2*(n+own)
	c.Parallel.Replicas, c.Optimizer.Shard = 2, true
	sliced, shape := Suit(pruned, Shape(c), c)
	if got, want := sliced.Layers[2].Bytes.Optimizer, int64(2*(3*4096*4+own)); got != want {
		t.Errorf("of %d bytes that replicas share and %d of its own a replica has %d of moments, want %d", n, own, got, want)
	}
	c.Optimizer.Shard = false
	if back, _ := Suit(sliced, shape, c); !back.Equal(pruned) {
		t.Errorf("back %+v, want %+v", back.Layers[2].Bytes, pruned.Layers[2].Bytes)
	}
}
