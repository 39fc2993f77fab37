package launch

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/kernel/cpu"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// row is a model whose runs are tested on the laws.
type row struct {
	name, sets string
	check      func(t *testing.T, on1 *run) // further check of the run on one stage; nil: none
}

// chosen are settings of every kind of change, by which it changes the model within ten
// steps; runs are validated on 7 sequences, so that the last microbatch is one too many.
const chosen = `train.steps=10 prune.start=1 prune.times=3 attention.buckets=4 data.validation=0.2 train.validate_every=4 train.validate_sequences=7
	freeze.when=step freeze.layers=3 freeze.step=4 freeze.start=1 freeze.every=1 freeze.reference=1 freeze.average=1 freeze.window=2 freeze.tolerance=0.3 freeze.thaw=2
	exit.share=0.6 exit.start=2 exit.until=6 mod.capacity=0.3 mod.route=predictor layerdrop.gamma=0.3 `

const (
	plastic    = "freeze.when=plasticity "
	saturation = "exit.confidence=saturation "
	softmax    = "exit.confidence=softmax "
	propagated = "exit.propagate=true "
	weighted   = "exit.share=0 exit.train=weighted "
	everyLeave = "exit.share=0 exit.threshold=-1 exit.probe=0 "
	topk       = "mod.route=topk "
	ungrouped  = "model.key_value_heads=0 " // hash buckets need as many keys as queries
	sBase      = "moe.balance=s-base "
	squashed   = "moe.router=mlp moe.scale=3 "
	dropping   = "moe.capacity=0.7 mod.route=topk "

	// Two queries for each key, and more positions than the model was trained for.
	llama = `model.family=llama model.heads=4 model.key_value_heads=2 model.intermediate=40 model.init=gpt2
		model.rope_scaling=llama3 model.rope_original_max_position_embeddings=4 `
	experts = llama + "moe.experts=5 moe.top=2 moe.intermediate=24 "
	// Blocks are attention and three groups of two experts.
	grouped = experts + "moe.experts=6 model.grain=expert moe.groups=3 "
	// Layers are several blocks of the norm, so that every replica has a slice.
	wide = "optimizer.shard=true model.hidden=48 model.heads=4 "
	// Each replica has room for two more experts than its share.
	copies = "moe.block_rows=5 moe.spare=2 "
	// Two replicas share six experts out.
	spread = experts + "moe.experts=6 parallel.replicas=2 parallel.experts=spread "
)

// bf16 rounds operands of dense products: by oneDNN where it is there.
var bf16 = func() string {
	k, err := cpu.NewRounded(1, false)
	if err != nil {
		return "device.cpu_precision=bf16-emulated "
	}
	k.Close()
	return "device.cpu_precision=bf16 "
}()

// rows are the kinds of change, alone and together, as far as they have a meaning. A kind that
// decides in several ways has a row for each way. The first row goes through every placement.
var rows = []row{
	{"prune", "", func(t *testing.T, r *run) { prunedTo(t, r, 3, 0.9, 1e-3) }},
	{name: "none", sets: "dynamic.kind=none"}, // masters and moments of layers that move follow them
	{"prune to blocks", "model.hidden=32 model.blocks=3 prune.structure=block32", func(t *testing.T, r *run) { prunedTo(t, r, 3, 0.9, 0.02) }}, // of 36 blocks
	{"prune 2:4", "model.hidden=32 model.blocks=3 prune.structure=2:4 prune.final=0.5 prune.select=gather", func(t *testing.T, r *run) { prunedTo(t, r, 3, 0.5, 0.02) }},
	{name: "freeze", sets: "dynamic.kind=freeze freeze.layers=7"},
	{name: "freeze, then thaw", sets: "parallel.replicas=1 dynamic.kind=freeze train.steps=20 freeze.thaw=3 " + plastic, check: thaws},
	{name: "attention", sets: "dynamic.kind=attention"},
	{name: "attention, keys of their own", sets: "dynamic.kind=attention attention.keys=own"},
	{name: "exit", sets: "dynamic.kind=exit"},
	{name: "exit by saturation", sets: "dynamic.kind=exit " + saturation},
	{name: "exit by softmax", sets: "dynamic.kind=exit " + softmax},
	{name: "exit, propagated", sets: "dynamic.kind=exit exit.propagate=true"},
	{name: "exit by weighted losses, then classifiers", sets: "dynamic.kind=exit exit.stage2=6 " + weighted},
	{name: "mod", sets: "dynamic.kind=mod"},
	{name: "mod by topk", sets: "dynamic.kind=mod " + topk},
	{name: "prune, freeze", sets: "dynamic.kind=prune+freeze freeze.thaw=3 train.steps=20 " + plastic, check: thaws},
	{name: "prune, attention", sets: "dynamic.kind=prune+attention"},
	{name: "prune, exit", sets: "dynamic.kind=prune+exit " + softmax},
	{name: "prune, exit, propagated", sets: "dynamic.kind=prune+exit exit.propagate=true"},
	{name: "prune, mod", sets: "dynamic.kind=prune+mod " + topk},
	{name: "freeze, attention", sets: "dynamic.kind=freeze+attention " + plastic},
	{name: "freeze, exit", sets: "dynamic.kind=freeze+exit " + plastic},
	{name: "freeze, exit by saturation", sets: "dynamic.kind=freeze+exit exit.propagate=true " + saturation},
	{name: "freeze, mod", sets: "dynamic.kind=freeze+mod train.steps=20 " + plastic},
	{name: "exit, mod", sets: "dynamic.kind=exit+mod"},
	{name: "mod, exit by softmax", sets: "dynamic.kind=mod+exit " + softmax},
	{name: "prune, freeze, attention", sets: "dynamic.kind=prune+freeze+attention " + plastic},
	{name: "prune, freeze, exit", sets: "dynamic.kind=prune+freeze+exit " + plastic},
	{name: "prune, freeze, mod", sets: "dynamic.kind=prune+freeze+mod"},
	{name: "prune, exit, mod", sets: "dynamic.kind=prune+exit+mod " + topk},
	{name: "freeze, exit, mod", sets: "dynamic.kind=freeze+exit+mod " + plastic},
	{name: "most kinds", sets: "dynamic.kind=prune+freeze+exit+mod " + plastic},
	{name: "layerdrop", sets: "dynamic.kind=layerdrop"},
	{name: "prune, layerdrop", sets: "dynamic.kind=prune+layerdrop"},
	{name: "freeze, attention, layerdrop", sets: "dynamic.kind=freeze+attention+layerdrop " + plastic},
	{name: "exit, layerdrop", sets: "dynamic.kind=exit+layerdrop exit.propagate=true " + saturation},
	{name: "exit, mod, layerdrop", sets: "dynamic.kind=exit+mod+layerdrop " + softmax},
	{name: "prune, freeze, mod, layerdrop", sets: "dynamic.kind=prune+freeze+mod+layerdrop " + topk},

	{name: "llama", sets: llama + "dynamic.kind=none"},
	{name: "llama, prune", sets: llama},
	{name: "llama, freeze", sets: llama + "dynamic.kind=freeze " + plastic},
	{name: "llama, exit", sets: llama + "dynamic.kind=exit " + saturation},
	{name: "llama, mod", sets: llama + "dynamic.kind=mod " + topk},
	{name: "llama, prune, freeze, mod", sets: llama + "dynamic.kind=prune+freeze+mod"},
	{name: "llama, exit, mod", sets: llama + "dynamic.kind=exit+mod " + softmax},
	{name: "llama, attention", sets: llama + "dynamic.kind=attention " + ungrouped},
	{name: "llama, prune, exit", sets: llama + "dynamic.kind=prune+exit " + propagated},

	{name: "moe", sets: experts + "dynamic.kind=moe"},
	{name: "moe, s-base", sets: experts + "dynamic.kind=moe " + sBase},
	{name: "moe, mod", sets: experts + "dynamic.kind=moe+mod " + dropping},
	{name: "prune, moe", sets: experts + "dynamic.kind=prune+moe " + squashed},
	{name: "freeze, moe", sets: experts + "dynamic.kind=freeze+moe " + plastic},
	{name: "moe, exit", sets: experts + "dynamic.kind=moe+exit " + saturation},
	{name: "moe, exit, propagated", sets: experts + "dynamic.kind=moe+exit " + propagated},
	{name: "moe, attention", sets: experts + "dynamic.kind=moe+attention " + ungrouped},
	{name: "most kinds, moe", sets: experts + "dynamic.kind=prune+freeze+moe+exit+mod"},

	{name: "groups", sets: grouped + "dynamic.kind=moe"},
	{name: "groups, s-base", sets: grouped + "dynamic.kind=moe " + sBase},
	{name: "groups, mod", sets: grouped + "dynamic.kind=moe+mod " + dropping},
	{name: "groups, prune, freeze", sets: grouped + "dynamic.kind=prune+freeze+moe " + plastic},
	{name: "groups, exit", sets: grouped + "dynamic.kind=moe+exit " + saturation},
	{name: "groups, exit, propagated", sets: grouped + "dynamic.kind=moe+exit " + propagated},
	{name: "groups, attention", sets: grouped + "dynamic.kind=moe+attention " + ungrouped},

	{name: "spread", sets: spread + "dynamic.kind=moe"},
	{name: "spread, mod", sets: spread + "dynamic.kind=moe+mod " + dropping},
	{name: "spread, s-base", sets: spread + "dynamic.kind=moe " + sBase},
	{name: "spread, exit, propagated", sets: spread + "dynamic.kind=moe+exit " + propagated},
	{name: "spread, freeze, exit, mod", sets: spread + "dynamic.kind=freeze+moe+exit+mod"},
	{name: "spread, exit", sets: spread + "dynamic.kind=moe+exit " + saturation},
	{name: "spread, attention", sets: spread + "dynamic.kind=moe+attention " + ungrouped},
	{name: "spread, layerdrop", sets: spread + "dynamic.kind=moe+layerdrop"},
	{name: "spread, freeze, exit, layerdrop", sets: spread + "dynamic.kind=freeze+moe+exit+layerdrop"},
	{name: "spread over three", sets: spread + "dynamic.kind=freeze+moe+mod parallel.replicas=3"},

	{name: "copies", sets: spread + copies + "dynamic.kind=moe"},
	{name: "copies, mod, layerdrop", sets: spread + copies + "dynamic.kind=moe+mod+layerdrop " + dropping},
	{name: "copies, freeze, exit", sets: spread + copies + "dynamic.kind=freeze+moe+exit moe.experts=5 moe.spare=1"},
	{name: "copies over three", sets: spread + copies + "dynamic.kind=freeze+moe+mod parallel.replicas=3 moe.experts=7"},
	{name: "copies, exit, propagated", sets: spread + copies + "dynamic.kind=moe+exit moe.block_rows=1 " + propagated},

	{name: "bf16", sets: "dynamic.kind=none " + bf16},
	{name: "bf16, prune", sets: bf16},
	{name: "bf16, exit", sets: "dynamic.kind=exit " + bf16},
	{name: "bf16, llama, mod", sets: llama + "dynamic.kind=mod " + bf16},
	{name: "bf16, copies", sets: spread + copies + "dynamic.kind=moe " + bf16},
	{name: "bf16, sharded, attention", sets: "dynamic.kind=attention parallel.replicas=2 " + wide + bf16},
	{name: "bf16 emulated, layerdrop", sets: "dynamic.kind=layerdrop device.cpu_precision=bf16-emulated"},
	{name: "bf16 of the reference", sets: "dynamic.kind=freeze device.kernel=ref device.cpu_precision=bf16"},

	{name: "rounded sums", sets: "parallel.replicas=2 comm.sum=bfloat16"},
	{name: "sums of groups", sets: "dynamic.kind=none parallel.replicas=4 comm.sum_group=2"},
	// Of blocks, embedding and head each replica has masters and moments of a slice.
	{name: "sharded", sets: "dynamic.kind=none parallel.replicas=2 " + wide},
	{name: "sharded, prune", sets: "parallel.replicas=2 " + wide},
	{name: "sharded, prune to blocks", sets: "parallel.replicas=3 model.blocks=3 prune.structure=block32 " + wide + "model.hidden=64 "},
	{name: "sharded, prune, freeze, mod", sets: "dynamic.kind=prune+freeze+mod parallel.replicas=2 " + wide},
	{name: "sharded, freeze", sets: "dynamic.kind=freeze freeze.layers=4 parallel.replicas=3 " + wide},
	{name: "sharded, freeze, exit, mod", sets: "dynamic.kind=freeze+exit+mod parallel.replicas=2 " + plastic + wide},
	{name: "sharded, attention", sets: "dynamic.kind=attention parallel.replicas=2 " + wide},
	{name: "sharded, exit", sets: "dynamic.kind=exit parallel.replicas=2 " + wide},
	{name: "sharded, mod", sets: "dynamic.kind=mod parallel.replicas=2 " + wide},
	{name: "sharded, moe", sets: experts + "dynamic.kind=moe parallel.replicas=2 " + wide},
	{name: "sharded, rounded sums of groups", sets: "dynamic.kind=layerdrop parallel.replicas=4 comm.sum=bfloat16 comm.sum_group=2 " + wide},
	{name: "sharded, spread", sets: spread + "dynamic.kind=moe " + wide},
	{name: "sharded, spread, freeze, mod", sets: spread + "dynamic.kind=freeze+moe+mod parallel.replicas=3 " + wide},
	{name: "rounded sums of groups, spread", sets: spread + "dynamic.kind=moe parallel.replicas=3 comm.sum=bfloat16 comm.sum_group=2"},
}

// little are rows in which nothing is left to do for most layers, or of a sequence one token.
var little = []row{
	{name: "no token behind the first exit", sets: "dynamic.kind=exit " + everyLeave},
	{name: "no token behind the first exit, by softmax", sets: "dynamic.kind=freeze+exit " + softmax + everyLeave},
	{name: "no token behind the first block, which routes", sets: "dynamic.kind=exit+mod exit.after=1 " + everyLeave},
	{name: "next to none", sets: "dynamic.kind=exit exit.share=0.999 exit.start=0 exit.until=1"},
	{name: "no token in routed blocks", sets: "dynamic.kind=prune+mod mod.threshold=1"},
	{name: "every token in routed blocks", sets: "dynamic.kind=mod mod.threshold=0"},
	{name: "one token of a sequence", sets: "dynamic.kind=mod mod.capacity=1e-9 " + topk},
	{name: "one token of a sequence, from exits", sets: "dynamic.kind=exit+mod mod.capacity=1e-9 exit.share=0.9 exit.until=3 " + topk},
	{name: "sequences of one token", sets: "dynamic.kind=exit+mod model.sequence=1"},
	{name: "sequences of one token, in a bucket", sets: "dynamic.kind=prune+attention model.sequence=1 attention.buckets=1"},
	{name: "a bucket for each token", sets: "dynamic.kind=attention model.sequence=16 attention.buckets=16"},
	{name: "all layers frozen", sets: "dynamic.kind=prune+freeze+exit+mod model.grain=block model.head_shards=1 freeze.layers=13"},
	{name: "all layers frozen, in buckets", sets: "dynamic.kind=freeze+attention model.grain=block model.head_shards=1 freeze.layers=10 freeze.step=0"},
	{name: "all but the last block and the head", sets: "dynamic.kind=freeze freeze.tolerance=0.99 freeze.thaw=0 " + plastic},
	{name: "no token for spread experts", sets: spread + "dynamic.kind=moe+exit+mod " + everyLeave},
	{name: "no token behind exits, for spread experts", sets: spread + "dynamic.kind=moe+exit " + everyLeave},
}

func prunedTo(t *testing.T, r *run, times int, final, within float64) {
	if n := len(r.sparsity); n != times || math.Abs(r.sparsity[n-1]-final) > within {
		t.Errorf("sparsities %v, want %d up to %v", r.sparsity, times, final)
	}
}

func thaws(t *testing.T, r *run) {
	if all := strings.Join(r.frozen, ", "); !strings.Contains(all, "thaw") || len(r.frozen) < 5 {
		t.Errorf("%s: want layers that freeze, one after the other, and thaw", all)
	}
}

// variants are choices of replicas, a tied head, the grain of layers, slices of the head, and
// recomputation. Every pair of choices occurs in some variant, except pairs with recomputation. A
// setting of the row itself wins.
var variants = []string{
	"parallel.replicas=1 model.tied=true model.grain=block model.head_shards=1 ",
	"parallel.replicas=2 model.tied=false model.grain=half model.head_shards=3 model.recompute=block ",
	"parallel.replicas=1 model.tied=true model.grain=half model.head_shards=4 model.recompute=attention ",
	"parallel.replicas=2 model.tied=true model.grain=block model.head_shards=1 mesh.order=replica-major model.recompute=block ",
	"parallel.replicas=1 model.tied=false model.grain=half model.head_shards=1 ",
	"parallel.replicas=3 model.tied=false model.grain=block model.head_shards=2 mesh.order=replica-major model.recompute=attention ",
	"parallel.replicas=2 model.tied=true model.grain=half model.head_shards=4 mesh.order=replica-major ",
	"parallel.replicas=1 model.tied=false model.grain=block model.head_shards=1 model.recompute=block ",
}

// settings returns those of a row in a variant, on one stage.
func (r row) settings(t *testing.T, variant int, more ...string) config.Config {
	t.Helper()
	return small(t, append([]string{"parallel.stages=1 ", chosen, variants[variant%len(variants)], r.sets}, more...)...)
}

// find returns the row with a name.
func find(t *testing.T, name string) row {
	t.Helper()
	all := slices.Concat(rows, little)
	i := slices.IndexFunc(all, func(r row) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("no row %q", name)
	}
	return all[i]
}

// place is a schedule, its number of chunks, and a number of stages.
type place struct {
	kind           string
	chunks, stages int
}

// places are the combinations of schedule and stages in which layers lie. Schedules of one chunk
// ignore chunks.
var places = []place{
	{"1f1b", 2, 4}, {"zb-v", 2, 3}, {"gpipe", 2, 8}, {"interleaved", 2, 4}, {"zb-h2", 2, 2}, {"zb-interleaved", 2, 4}, {"zb-h1", 2, 8}, {"zb-v", 2, 1},
	{"interleaved", 3, 2}, {"1f1b", 2, 8}, {"zb-h1", 2, 4}, {"zb-v", 2, 4}, {"gpipe", 2, 2}, {"zb-h2", 2, 8}, {"interleaved", 2, 2}, {"1f1b", 2, 2},
	{"zb-v", 2, 2}, {"zb-h2", 2, 4}, {"gpipe", 2, 4}, {"zb-h1", 2, 2}, {"interleaved", 3, 1}, {"zb-interleaved", 2, 2}, {"zb-v", 2, 8}, {"1f1b", 2, 1},
	{"interleaved", 2, 1}, {"gpipe", 2, 1}, {"zb-h2", 2, 3}, {"zb-interleaved", 3, 3},
}

// in returns the settings for a place. It returns false if there are fewer layers than chunks, or
// if microbatches are not a multiple of the stages.
func (p place) in(c config.Config) (config.Config, bool) {
	c.Schedule.Kind, c.Schedule.Chunks, c.Parallel.Stages = p.kind, p.chunks, p.stages
	return c, c.Validate() == nil
}

// fitting returns the settings of the first n places, starting at place `from`, that fit; of all
// fitting places if all are wanted.
func fitting(c config.Config, from, n int) (list []config.Config) {
	for k := range places {
		if at, fits := places[(from+k)%len(places)].in(c); fits && (long || len(list) < n) {
			list = append(list, at)
		}
	}
	return list
}

// title returns a name for settings.
func title(c config.Config) string {
	return fmt.Sprintf("%s/D=%d/tied=%v/%s/slices=%d/%s/V=%d/P=%d", c.Dynamic.Kind,
		c.Parallel.Replicas, c.Model.Tied, c.Model.Grain, c.Model.HeadShards, c.Schedule.Kind, c.Schedule.Virtual(), c.Parallel.Stages)
}

// TestLaws: every row of the table, alone and beside others, keeps law 1 and law 2. The columns are
// disturbances of its run. Losses, gradient norms, validation losses, the final hash, and the steps
// at which layers freeze must be those of an undisturbed run. The undisturbed run has one stage and
// never stops. Each of its replicas has all masters and moments, and it recomputes nothing. With
// DYNMO_LONG=1 every row goes through all columns, in all variants and places. Otherwise a row goes
// through one variant. A kind by itself moves in a place, is saved and continues elsewhere, and
// goes through one of the other columns, in turn. A mix of two kinds goes through one column, in
// turn; a mix of three waits for DYNMO_LONG=1.
func TestLaws(t *testing.T) {
	for i, r := range slices.Concat(rows, little) {
		for v := range variants {
			if !long && v != i%len(variants) || testing.Short() && i > 0 {
				continue
			}
			c := r.settings(t, v)
			if !long && strings.Count(c.Dynamic.Kind, "+") > 1 && !strings.Contains(r.name, "most kinds") {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", r.name, v), func(t *testing.T) {
				plain := c
				plain.Optimizer.Shard, plain.Model.Recompute = false, "none"
				still := goRun(t, plain, nil)
				if first, last := still.losses[0], still.losses[len(still.losses)-1]; still.moves != 0 || last >= first && i < len(rows) {
					t.Errorf("%d moves on one stage, loss from %v to %v", still.moves, first, last)
				}
				if r.check != nil {
					r.check(t, still)
				}
				whole := long || !strings.Contains(c.Dynamic.Kind, "+")
				if whole || i%5 == 3 {
					moves(t, fitting(c, 5*i, 1), uint64(i), still)
				}
				if whole || i%5 == 4 {
					resumes(t, c, i, still)
				}
				for k, do := range []func(*testing.T, config.Config, int, *run){balances, leaves, regroups} {
					if long || whole && k == i%3 || !whole && k == i%5 {
						do(t, c, i, still)
					}
				}
			})
		}
	}
}

// TestSchedulesAndMeshes is law 1 of the first row in every place. Variants take turns.
func TestSchedulesAndMeshes(t *testing.T) {
	for v := range variants {
		if testing.Short() && v%4 > 0 {
			continue
		}
		c := rows[0].settings(t, v)
		still := goRun(t, c, nil)
		for k, p := range places {
			if at, fits := p.in(c); fits && k%len(variants) == v {
				moves(t, []config.Config{at}, uint64(k), still)
			}
		}
	}
}

// moves trains in each of some places, and scatters the layers anew after every step.
func moves(t *testing.T, list []config.Config, seed uint64, still *run) {
	for k, c := range list {
		t.Run("moves/"+title(c), func(t *testing.T) {
			moved := goRun(t, c, scatter(seed+uint64(k)))
			if c.Parallel.Stages > 1 && moved.moves < c.Train.Steps/2 {
				t.Errorf("only %d of %d steps moved layers", moved.moves, c.Train.Steps)
			}
			if c.Parallel.Stages > 1 && c.Dynamic.Kind == "none" && moved.behind == 0 {
				t.Error("no moments followed a move")
			}
			same(t, moved, still)
		})
	}
}

// resumes saves a run on three stages and continues it on other stages with another schedule, where
// other parts are recomputed.
func resumes(t *testing.T, c config.Config, i int, still *run) {
	stops := []int{1, 3, 5, 7, 9}
	if !long && i > 0 {
		stops = stops[1+2*(i%2):][:1] // 3 or 7
	}
	c.Parallel.Stages = 3
	for k, stop := range stops {
		saved := session{dir: t.TempDir(), stop: stop, balancer: scattered(uint64(i))}
		first := saved.train(t, c)
		if o := saved.outcome; o.Steps != stop || !o.Stopped || o.Saved != stop {
			t.Fatalf("asked to end after step %d: %+v", stop, o)
		}
		for stages := 1; stages <= 5; stages++ {
			if !long && stages != 1+(i+k)%5 {
				continue
			}
			c := c
			c.Parallel.Stages, c.Schedule.Kind = stages, []string{"zb-h1", "zb-v", "1f1b", "gpipe"}[(i+k)%4]
			c.Model.Recompute = []string{"none", "attention", "block"}[(i+k)%3]
			if c.Validate() != nil {
				c.Schedule.Kind = "1f1b" // the place has more chunks than layers
			}
			t.Run(fmt.Sprintf("resumes/%d/%s", stop, title(c)), func(t *testing.T) {
				then := session{from: saved.dir, balancer: scattered(uint64(stages))}
				rest := then.train(t, c)
				if at := joined(first, rest).difference(still); at != "" {
					t.Errorf("differs from an undisturbed run at %s", at)
				}
				if then.resumed.Step != stop || then.outcome.Steps != c.Train.Steps {
					t.Errorf("went on from step %d to step %d", then.resumed.Step, then.outcome.Steps)
				}
			})
		}
	}
}

// balances trains on three stages with cuts and schedules from measured costs. Every rank searches
// for them. TestBalancersChangeNothing has four stages.
func balances(t *testing.T, c config.Config, i int, still *run) {
	c.Parallel.Stages, c.Balance.Every = 3, "3"
	for k, kind := range []string{"list", "zb-v", "1f1b", "auto"} {
		if !long && k != i/3%3 && (i > 0 || k < 3) {
			continue
		}
		c.Schedule.Kind, c.Balance.Kind = kind, []string{"partition", "diffusion"}[(i+k)%2]
		if c.Validate() != nil {
			c.Schedule.Kind, c.Balance.Kind = "1f1b", "partition"
		}
		t.Run("balances/"+title(c), func(t *testing.T) { same(t, goRun(t, c, nil), still) })
	}
}

// leaves makes ranks leave in mid-run: from 4 stages to 3 (or 2, if a schedule needs it) to 1, with
// either order of ranks. The remaining ranks are any of them, and layers move in the same decision.
func leaves(t *testing.T, c config.Config, i int, still *run) {
	for k, kind := range []string{"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-interleaved", "list"} {
		c.Schedule.Kind, c.Schedule.Chunks, c.Parallel.Stages = kind, 2, 4
		if !long && k != i/3%8 || c.Validate() != nil {
			continue
		}
		t.Run("leaves/"+title(c), func(t *testing.T) {
			fewer := 3
			if strings.Contains(kind, "interleaved") {
				fewer = 2 // microbatches must be a multiple of stages
			}
			out, left := shrunk(t, c, map[int]int{2: fewer, 6: 1}, uint64(i), &run{})
			same(t, out, still)
			if want := int64(3 * c.Parallel.Replicas); left != want || len(out.losses) != c.Train.Steps {
				t.Errorf("%d ranks left and %d steps were run, want %d and %d", left, len(out.losses), want, c.Train.Steps)
			}
		})
	}
}

// regroups makes microbatches larger in mid-run, which changes numbers. From then on the numbers
// are the same in all layouts.
func regroups(t *testing.T, c config.Config, i int, _ *run) {
	c.Train.Steps, c.Parallel.Microbatches, c.Parallel.Stages = 5, 6, 2
	still := packedRun(t, c, packing{2, 1, 2, schedule.Kind1F1B, 1})
	for k, kind := range []string{"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v"} {
		c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = 3, kind, 2
		if (long || k == i/3%6) && c.Validate() == nil {
			t.Run("regroups/"+title(c), func(t *testing.T) {
				same(t, packedRun(t, c, packing{2, 2, 2, schedule.Kind(kind), c.Schedule.Virtual()}), still)
			})
		}
	}
}

// TestThreadsChangeNothing is law 1 over the threads of a rank. Layers are wide enough to be shared
// by threads, and the head is whole or in slices. It covers few rows, with DYNMO_LONG=1 all rows,
// and every number of threads on one stage and on three.
func TestThreadsChangeNothing(t *testing.T) {
	if !cpu.Built {
		t.Skip("built without the tag blas: kernels of one thread only")
	}
	for i, r := range rows {
		if !long && r.name != "prune" && r.name != "most kinds" && r.name != "moe" {
			continue
		}
		sets := "model.blocks=3 model.hidden=192 model.heads=4 model.sequence=64 train.steps=4 prune.every=1 prune.initial=0.3 freeze.layers=2 freeze.step=2 freeze.when=step "
		if i == 0 {
			sets += "model.blocks=2 model.hidden=256 model.vocab=2048 "
		}
		for _, slices := range []int{1, 4} {
			if !long && (slices == 1) != (i == 0) {
				continue
			}
			c := r.settings(t, 0, sets, fmt.Sprintf("model.head_shards=%d", slices))
			c.Device.Threads = 1
			still := goRun(t, c, nil)
			for _, at := range [][2]int{{1, 2}, {3, 3}, {3, 1}, {1, 3}, {3, 2}} {
				if c.Parallel.Stages, c.Device.Threads = at[0], at[1]; long || at[0] == at[1] || at[1] == 2 && at[0] == 1 && i == 0 {
					t.Run(fmt.Sprintf("%s/%d slices/%d stages/%d threads", r.name, slices, at[0], at[1]), func(t *testing.T) {
						same(t, goRun(t, c, scatter(uint64(at[1]))), still)
					})
				}
			}
		}
	}
}

// TestRandomShapes is law 1 of the rows on odd shapes. Shapes go down to sequences of one token,
// one head channel, few microbatches, and a layer for each stage. Capacities of experts go down to
// values that drop most assignments. 24 shapes are drawn, with DYNMO_LONG=1 600.
func TestRandomShapes(t *testing.T) {
	draws := uint64(24)
	if long {
		draws = 600
	} else if testing.Short() {
		draws = 3
	}
	for seed := range draws {
		name, c := drawn(t, seed)
		t.Run(fmt.Sprintf("%d/%s/%s", seed, name, title(c)), func(t *testing.T) {
			same(t, goRun(t, c, scatter(seed)), goRun(t, onOne(c), nil))
			if t.Failed() {
				t.Log(c.TOML())
			}
		})
	}
}

// onOne returns the settings with one stage and without recomputation.
func onOne(c config.Config) config.Config {
	c.Parallel.Stages, c.Schedule.Kind, c.Model.Recompute = 1, "1f1b", "none"
	return c
}

// drawn draws a row, the shape of its model, and a place.
func drawn(t *testing.T, seed uint64) (name string, c config.Config) {
	p, text := picker{draw: random.Keyed(seed, 78)}, corpus(t)
	for fits := false; !fits; {
		r := rows[p.pick(0, len(rows)-1)]
		p.sets = chosen + r.sets
		p.int("model.blocks", 1, 6)
		p.int("model.sequence", 1, 9)
		p.int("model.vocab", 256, 300)
		p.one("model.tied", "true", "false")
		p.one("model.recompute", "none", "attention", "block")
		p.int("model.head_shards", 1, 4)
		p.int("parallel.replicas", 1, 3)
		p.int("parallel.microbatches", 1, 5)
		p.int("parallel.microbatch_size", 1, 3)
		p.one("mesh.order", "stage-major", "replica-major")
		p.one("prune.select", "radix", "gather")
		p.int("prune.every", 1, 2)
		p.set("attention.buckets", 1<<p.pick(0, 3))
		if !strings.Contains(r.sets, weighted) {
			p.one("exit.share", "0", "0.3", "0.6", "0.9")
		}
		p.one("exit.probe", "0", "0.5", "1")
		p.one("exit.threshold", "-0.1", "0", "0.5", "0.9")
		p.one("mod.capacity", "0.1", "0.5", "1")
		p.one("mod.threshold", "0", "0.4", "1")
		p.int("freeze.layers", 1, 8)
		if strings.Contains(r.sets, llama) {
			p.llama(strings.Contains(r.sets, spread), strings.Contains(r.sets, grouped))
		} else {
			p.set("model.hidden", p.int("model.heads", 1, 3)*p.pick(1, 9))
			p.one("model.grain", "block", "half")
		}
		p.sets += " parallel.stages=1" // small has more stages than some models have layers
		at := places[p.pick(0, len(places)-1)]
		var err error
		if c, err = load(text, p.sets); err == nil {
			name = r.name
			c, fits = at.in(c)
		}
	}
	return name, c
}

// picker draws settings at random.
type picker struct {
	draw interface{ IntN(int) int }
	sets string
}

func (p *picker) pick(lo, hi int) int          { return lo + p.draw.IntN(hi-lo+1) }
func (p *picker) one(key string, of ...string) { p.sets += " " + key + "=" + of[p.pick(0, len(of)-1)] }
func (p *picker) set(key string, value int)    { p.sets += fmt.Sprintf(" %s=%d", key, value) }

func (p *picker) int(key string, lo, hi int) int {
	value := p.pick(lo, hi)
	p.set(key, value)
	return value
}

// llama draws a LLaMA and its experts. There is at least one expert, and a token goes to any number
// of the experts. Spread experts are shared out to two to four replicas. Grouped experts form as
// many layers.
func (p *picker) llama(spread, grouped bool) {
	whole := strings.Contains(p.sets, ungrouped) // hash buckets need as many keys as queries
	heads := p.int("model.key_value_heads", 1, 3) * p.pick(1, 3)
	p.set("model.heads", heads)
	if whole {
		p.set("model.key_value_heads", 0)
	}
	p.set("model.hidden", heads*2*p.pick(1, 4))
	p.int("model.intermediate", 1, 40)
	p.int("moe.intermediate", 0, 20)
	p.one("model.rope_scaling", "none", "linear", "llama3")
	p.one("moe.capacity", "0", "0", "1e-12", "0.1", "0.7", "1")
	p.int("moe.z", 0, 1)
	p.one("moe.router", "linear", "mlp")
	p.one("moe.scale", "1", "4")
	all := p.pick(1, 9)
	if parts := p.pick(2, 4); spread || grouped {
		all = parts * p.pick(1, 3)
		p.set("moe.groups", parts)
		p.set("parallel.replicas", parts)
	}
	if !grouped {
		p.one("model.grain", "block", "half")
	} else if p.pick(0, 1) == 0 {
		p.set("parallel.replicas", 1)
	}
	p.set("moe.experts", all)
	p.set("moe.top", p.pick(1, all))
}
