package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/kernel/cpu"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/freeze"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/random"
)

// mixes are the kinds of change that have a meaning, alone and together, each with the
// settings by which it decides in more ways than one.
var mixes = []mix{
	{"freeze", nil}, {"freeze", byPlasticity}, {"attention", nil}, {"exit", nil}, {"exit", saturation}, {"exit", softmax},
	{"mod", nil}, {"mod", topk}, {"prune+freeze", byPlasticity}, {"prune+attention", nil}, {"prune+exit", softmax}, {"prune+mod", topk},
	{"freeze+attention", byPlasticity}, {"freeze+exit", byPlasticity}, {"freeze+exit", saturation}, {"freeze+mod", byPlasticity}, {"exit+mod", nil},
	{"mod+exit", softmax}, {"prune+freeze+attention", byPlasticity}, {"prune+freeze+exit", byPlasticity}, {"prune+freeze+mod", nil},
	{"prune+exit+mod", topk}, {"freeze+exit+mod", byPlasticity}, {"prune+freeze+exit+mod", byPlasticity},
}

type mix struct {
	kind string
	set  func(*config.Config)
}

func byPlasticity(c *config.Config) { c.Assign("freeze.when", "plasticity") }
func saturation(c *config.Config)   { c.Assign("exit.confidence", "saturation") }
func softmax(c *config.Config)      { c.Assign("exit.confidence", "softmax") }
func topk(c *config.Config)         { c.Assign("mod.route", "topk") }

// of returns the settings with the kinds of a mix, all of which change the model within
// ten steps.
func (m mix) of(c config.Config) config.Config {
	c.Dynamic.Kind, c.Train.Steps = m.kind, 10
	c.Assign("prune.start", 1, "prune.every", 2, "prune.times", 3)
	config.Set(&c, freeze.Settings{When: "step", Layers: 3, Step: 4, Start: 1, Every: 1, Reference: 1, Average: 1, Window: 2, Tolerance: 0.3, Thaw: 2})
	c.Assign("attention.buckets", 4)
	c.Assign("exit.share", 0.6, "exit.start", 2, "exit.until", 6)
	c.Assign("mod.capacity", 0.3, "mod.route", "predictor")
	if m.set != nil {
		m.set(&c)
	}
	return c
}

// forms returns a mix with whole blocks, a tied head and one replica, and with halves of
// blocks, a head in slices and two; if all are wanted the other two pairings as well, else
// one of the two by number.
func (m mix) forms(t *testing.T, number int, all bool) (list []config.Config) {
	for bits := range 4 {
		if !all && bits != 3*(number%2) {
			continue
		}
		c := m.of(small(t))
		c.Parallel.Replicas = 1 + bits&1
		c.Model.Tied, c.Model.Grain, c.Model.HeadShards = bits < 2, []string{"block", "half"}[bits>>1], []int{1, 3}[bits>>1]
		list = append(list, c)
	}
	return list
}

// placements are schedules with chunks on a stage and numbers of stages.
func placements() (list []config.Config) {
	for _, s := range append(slices.Clone(schedules), []struct {
		kind   string
		chunks int
		stages []int
	}{{"zb-v", 2, []int{8}}, {"zb-interleaved", 2, []int{4, 2}}, {"gpipe", 1, []int{1}}}...) {
		for _, stages := range s.stages {
			var c config.Config
			c.Schedule.Kind, c.Schedule.Chunks, c.Parallel.Stages = s.kind, max(2, s.chunks), stages // others do not look at chunks
			list = append(list, c)
		}
	}
	return list
}

// puts returns the settings with the schedule and the stages of a placement; false where
// its chunks are more than the layers.
func puts(c, at config.Config) (config.Config, bool) {
	c.Schedule.Kind, c.Schedule.Chunks, c.Parallel.Stages = at.Schedule.Kind, at.Schedule.Chunks, at.Parallel.Stages
	return c, c.Validate() == nil
}

// name names a case.
func (m mix) name(c config.Config) string {
	return fmt.Sprintf("%s/%s/%s/%s/%s", m.kind, config.Of[freeze.Settings](c).When, config.Of[exit.Settings](c).Confidence, config.Of[mod.Settings](c).Route, variant(c))
}

// same fails the test where a run differs from one stage that never moved a layer, in its
// numbers or in when layers froze.
func same(t *testing.T, got, want *run) {
	t.Helper()
	if at := got.difference(want); at != "" {
		t.Errorf("differs from one stage at %s", at)
	}
	if !slices.Equal(got.frozen, want.frozen) {
		t.Errorf("changes %q, of one stage %q", got.frozen, want.frozen)
	}
}

// TestKindsKeepLaw1: every kind of change and every mix of them has the losses, gradient
// norms and final hash of one stage that never moved a layer, wherever layers lie and
// however often they move. With DYNMO_LONG=1 in all forms and placements, else in one of
// each mix of several; kinds alone have tests of their own.
func TestKindsKeepLaw1(t *testing.T) {
	skipUnlessC(t)
	everywhere := placements()
	for i, m := range mixes {
		if !long && !strings.Contains(m.kind, "+") {
			continue
		}
		for _, c := range m.forms(t, i, long) {
			still := goRun(t, c, nil)
			if c.Dynamic.Has("freeze") && len(still.frozen) == 0 {
				t.Errorf("%s: no layer froze", m.name(c))
			}
			for k, at := range everywhere {
				c, fits := puts(c, at)
				if !fits || !long && k != 5*i%len(everywhere) {
					continue
				}
				t.Run(m.name(c), func(t *testing.T) {
					moved := goRun(t, c, scatter(uint64(i*len(everywhere)+k)))
					if c.Parallel.Stages > 1 && moved.moves < c.Train.Steps/2 {
						t.Errorf("only %d of %d steps moved layers", moved.moves, c.Train.Steps)
					}
					same(t, moved, still)
				})
			}
		}
	}
}

// TestKindsKeepLaw1UnderBalancers: with cuts and schedules that follow from measured costs
// the numbers are those of one stage too. With DYNMO_LONG=1 of all mixes, else of one.
func TestKindsKeepLaw1UnderBalancers(t *testing.T) {
	skipUnlessC(t)
	for i, m := range mixes {
		if !long && i != len(mixes)-1 {
			continue
		}
		c := m.forms(t, i, false)[0]
		still := goRun(t, c, nil)
		c.Parallel.Stages, c.Balance.Every = 4, "2"
		for k, kind := range []string{"list", "auto", "1f1b", "zb-v"} {
			if !long && k > 0 {
				continue
			}
			c.Schedule.Kind = kind
			c.Balance.Kind = []string{"partition", "diffusion"}[(i+k)%2]
			if c.Validate() != nil {
				c.Balance.Kind = "partition"
			}
			t.Run(m.name(c), func(t *testing.T) { same(t, goRun(t, c, nil), still) })
		}
	}
}

// TestKindsKeepLaw2: a run of every mix that was saved goes on, on other stages, with the
// numbers of one that never ended. With DYNMO_LONG=1 of all mixes and forms.
func TestKindsKeepLaw2(t *testing.T) {
	skipUnlessC(t)
	for i, m := range mixes {
		if !long && i%8 != 6 {
			continue
		}
		for _, c := range m.forms(t, i, long) {
			c.Parallel.Stages = 3
			whole := goRun(t, c, nil)
			for _, stop := range []int{3, 7} {
				t.Run(fmt.Sprintf("%s/%d", m.name(c), stop), func(t *testing.T) {
					saved := part{dir: t.TempDir(), stop: stop}
					first, _ := trainPart(t, c, saved)
					c := c
					c.Parallel.Stages, c.Schedule.Kind = 1+i%5, "zb-h1"
					then, end := trainPart(t, c, part{from: saved.dir})
					if at := joined(first, then).difference(whole); at != "" || end.Steps != c.Train.Steps {
						t.Errorf("differs from an undisturbed run at %s (%d steps)", at, end.Steps)
					}
				})
			}
		}
	}
}

// TestThreadsOfKinds is law 1 of mixes over the threads of a rank, on layers wide
// enough to be worth sharing: of the one of most kinds, with DYNMO_LONG=1 of all.
func TestThreadsOfKinds(t *testing.T) {
	if !cpu.Built {
		t.Skip("built without the tag blas: kernels of one thread only")
	}
	for i, m := range mixes {
		if !long && i != len(mixes)-1 {
			continue
		}
		c := m.of(small(t))
		c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence, c.Model.HeadShards = 3, 192, 3, 64, 2
		c.Train.Steps = 6
		c.Assign("freeze.layers", 2, "freeze.step", 2)
		still := goRun(t, c, nil)
		c.Parallel.Stages, c.Device.Threads = 3, 3
		t.Run(m.name(c), func(t *testing.T) { same(t, goRun(t, c, scatter(uint64(i))), still) })
	}
}

// TestRandomShapesOfKinds is law 1 of mixes on odd shapes, down to sequences of one token
// and one head channel: 6 draws, with DYNMO_LONG=1 150.
func TestRandomShapesOfKinds(t *testing.T) {
	randomShapes(t, 6, 78, mixes, func(c *config.Config, pick func(lo, hi int) int) {
		c.Model.Heads = pick(1, 3)
		c.Model.Hidden = c.Model.Heads * pick(1, 9)
	})
}

// draw is what a family of models draws of its own.
type draw func(c *config.Config, pick func(lo, hi int) int)

// randomShapes trains models that are drawn, some in the standard suite, and has same
// compare them with one stage.
func randomShapes(t *testing.T, some, stream uint64, mixes []mix, shape draw) {
	t.Helper()
	skipUnlessC(t)
	if long {
		some = 150
	}
	for seed := range some {
		c, m := drawn(t, seed, stream, mixes, shape)
		t.Run(fmt.Sprintf("%d/%s", seed, m.name(c)), func(t *testing.T) {
			same(t, goRun(t, c, scatter(seed)), goRun(t, onOne(c), nil))
			if t.Failed() {
				t.Logf("%+v, %+v, %+v, %+v, %+v", c.Model, c.Parallel, config.Of[exit.Settings](c), config.Of[mod.Settings](c), config.Of[moe.Settings](c))
			}
		})
	}
}

// onOne returns the settings with one stage.
func onOne(c config.Config) config.Config {
	c.Parallel.Stages, c.Schedule.Kind = 1, "1f1b"
	return c
}

// drawn draws the settings of a model, its placement and one of the mixes.
func drawn(t *testing.T, seed, stream uint64, mixes []mix, shape draw) (c config.Config, m mix) {
	random, everywhere := random.Keyed(seed, stream), placements()
	pick := func(lo, hi int) int { return lo + random.IntN(hi-lo+1) }
	for fits := false; !fits; {
		m = mixes[pick(0, len(mixes)-1)]
		c = m.of(small(t))
		c.Model.Blocks, c.Model.Sequence = pick(1, 6), pick(1, 9)
		c.Model.Vocab, c.Model.Tied = pick(256, 300), pick(0, 1) == 1
		c.Model.Grain, c.Model.HeadShards = []string{"block", "half"}[pick(0, 1)], pick(1, 4)
		c.Parallel.Replicas, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = pick(1, 3), pick(1, 5), pick(1, 3)
		shape(&c, pick)
		c.Assign("attention.buckets", 1<<pick(0, 3))
		c.Assign("exit.share", float64(pick(0, 9))/10, "exit.probe", float64(pick(0, 2))/2, "mod.capacity", float64(pick(1, 10))/10)
		c.Assign("exit.threshold", float64(pick(-1, 10))/10, "mod.threshold", float64(pick(0, 10))/10)
		c.Assign("freeze.layers", pick(1, c.Layers()))
		c, fits = puts(c, everywhere[pick(0, len(everywhere)-1)])
	}
	return c, m
}
