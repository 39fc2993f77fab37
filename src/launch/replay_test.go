package launch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/model"
)

// TestReplay is laws 1 and 2 for runs with loads from a file. The place of layers, their moves and
// interruptions change no bit of the weights. The loads are those of the file, and no loss is
// reported.
func TestReplay(t *testing.T) {
	skipUnlessC(t)
	for i, c := range []struct {
		sets  string
		check func(t *testing.T, r *run)
	}{
		{"dynamic.kind=prune+freeze parallel.replicas=2", func(t *testing.T, r *run) {
			// Means of 1 - 0.5^(l/8) and of 1 - 0.25^(l/8) over l = 1 to 8.
			if got := fmt.Sprintf("%.2f %q", r.sparsity, r.frozen); got != `[0.31 0.50] ["2 prune+freeze 3" "6 prune+freeze 5"]` {
				t.Errorf("sparsities and frozen layers %s", got)
			}
		}},
		{"dynamic.kind=attention attention.buckets=4 parallel.replicas=2 model.recompute=block", scoredPairs},
		{"dynamic.kind=attention attention.buckets=4 attention.keys=shared model.grain=half", scoredPairs},
		{"dynamic.kind=exit parallel.replicas=2 model.recompute=block", leftOrTaken("exit", 1)},
		{"dynamic.kind=mod mod.route=predictor model.recompute=block", leftOrTaken("routed", 1)},
		{"dynamic.kind=exit+mod mod.route=predictor exit.confidence=softmax", leftOrTaken("exit", 1)},
		{"dynamic.kind=moe model.blocks=4 moe.experts=4 moe.top=2 model.recompute=block " + llama, tokensOfExperts},
		{"dynamic.kind=moe model.blocks=4 moe.experts=4 moe.top=2 model.grain=expert moe.groups=2 " + llama, tokensOfExperts},
		{"dynamic.kind=moe model.blocks=4 moe.experts=4 moe.top=2 parallel.replicas=2 parallel.experts=spread " + llama, tokensOfExperts},
	} {
		t.Run(strings.Fields(c.sets)[0], func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "loads.jsonl")
			at := small(t, "train.steps=10 parallel.stages=1 dynamic.replay="+path+" "+c.sets)
			expect.OK(t, os.WriteFile(path, []byte(replayFile(at)), 0o600))
			still := replay(t, &session{}, at)
			c.check(t, still)
			at.Parallel.Stages = 3
			same(t, replay(t, &session{balancer: scattered(uint64(i))}, at), still)
			saved := session{dir: t.TempDir(), stop: 5, balancer: scattered(uint64(i))}
			first := replay(t, &saved, at)
			at.Parallel.Stages = 2
			same(t, joined(first, replay(t, &session{from: saved.dir}, at)), still)
		})
	}
}

// leftOrTaken checks that the loads of a step equal those of the file. Layers report the loads as a
// count.
func leftOrTaken(name string, value int) func(t *testing.T, r *run) {
	return func(t *testing.T, r *run) {
		for _, step := range []int{2, 5, 6, 9} {
			n := 0
			for _, c := range r.metrics[step].Counts {
				if c.Name != name {
					continue
				}
				want, each := int64(0), int64(1+step/6)
				for m := range int64(r.metrics[step].BatchSize / 2) {
					want += (m%3 + 1) * each
				}
				if c.Values[value] != want {
					t.Errorf("step %d: %s counts %v, want %d", step, c.Layer, c.Values, want)
				}
				n++
			}
			if n == 0 {
				t.Errorf("step %d: no layer counts %s", step, name)
			}
		}
	}
}

// tokensOfExperts checks that the first expert takes all tokens, then half of them.
func tokensOfExperts(t *testing.T, r *run) {
	for step, share := range map[int]int64{2: 2, 5: 2, 6: 1, 9: 1} {
		for _, c := range r.metrics[step].Counts {
			if want := c.Values[0] * share / 2; c.Name == "experts" && c.Values[4] != want {
				t.Errorf("step %d: %s counts %v, want %d tokens of the first expert", step, c.Layer, c.Values, want)
			}
		}
		if len(r.metrics[step].Counts) < 4 {
			t.Errorf("step %d: counts %v", step, r.metrics[step].Counts)
		}
	}
}

// scoredPairs checks that all causal pairs are scored, then those of two halves of the tokens.
func scoredPairs(t *testing.T, r *run) {
	for step, parts := range map[int]int64{2: 1, 5: 1, 6: 2, 9: 2} {
		n := 0
		for _, c := range r.metrics[step].Counts {
			if c.Name != "pairs" {
				continue
			}
			const length = 12
			if n++; c.Values[0]*(length+1) != c.Values[1]*(length/parts+1) {
				t.Errorf("step %d: %s counts %v, want %d buckets", step, c.Layer, c.Values, parts)
			}
		}
		if n != 8 {
			t.Errorf("step %d: %d layers count pairs, want 8", step, n)
		}
	}
}

// replay trains. It hides the losses, which are NaN and so equal to nothing.
func replay(t *testing.T, s *session, c config.Config) *run {
	t.Helper()
	out := s.train(t, c)
	for i, m := range out.metrics {
		if !math.IsNaN(float64(m.Loss)) || !m.Replayed {
			t.Errorf("step %d: loss %v, replayed %v", i, m.Loss, m.Replayed)
		}
		out.losses[i] = 0
	}
	return out
}

// replayFile returns loads for a model's layers in two steps.
func replayFile(c config.Config) string {
	var b strings.Builder
	chain, fields := model.FromConfig(c).Chain(), map[bool]string{true: "left", false: "taken"}
	for k, step := range []int{2, 6} {
		for layer := range c.Layers() {
			if strings.Contains(c.Dynamic.Kind, "prune") && layer > 0 && layer < c.Layers()-1 {
				fmt.Fprintf(&b, `{"step":%d,"layer":%d,"density":%v}`+"\n", step, layer, math.Pow(0.5/float64(1+k), float64(layer)/8))
			}
			if strings.Contains(c.Dynamic.Kind, "freeze") {
				fmt.Fprintf(&b, `{"step":%d,"layer":%d,"frozen":%d}`+"\n", step, layer, map[bool]int{true: 1}[layer < 3+2*k])
			}
			for m := range c.Parallel.Microbatches * c.Parallel.Replicas {
				if strings.Contains(c.Dynamic.Kind, "moe") && (strings.HasSuffix(chain[layer].Name, "experts.0") || strings.Count(chain[layer].Name, ".") == 1) {
					n := c.TokensOfMicrobatch()
					first := n / (1 + k) // tokens of the first of four experts, which take two assignments of each token together
					fmt.Fprintf(&b, `{"step":%d,"layer":%d,"microbatch":%d,"tokens":[%d,%d,0,%d]}`+"\n", step, layer, m, first, n-m-1, n-first+m+1)
				}
				if strings.Contains(c.Dynamic.Kind, "attention") && chain[layer].Makers[0].Kind == model.Attention {
					n := c.TokensOfMicrobatch()
					fmt.Fprintf(&b, `{"step":%d,"layer":%d,"microbatch":%d,"buckets":[%d,%d,0,0]}`+"\n", step, layer, m, n/(1+k), n-n/(1+k))
				}
				if field := fields[chain[layer].Kind == model.Exit]; field == "left" || chain[layer].Form == "routed" {
					fmt.Fprintf(&b, `{"step":%d,"layer":%d,"microbatch":%d,"%s":%d}`+"\n", step, layer, m, field, (m%3+1)*(1+k))
				}
			}
		}
	}
	return b.String()
}
