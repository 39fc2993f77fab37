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
)

// TestReplay is laws 1 and 2 of runs whose loads follow a file: where layers lie, when they
// move and where a run is interrupted changes no bit of the weights. The loads are those of the
// file, and no loss is reported.
func TestReplay(t *testing.T) {
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

// replay trains, and hides the losses, which are not numbers and equal to nothing.
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

// replayFile returns loads of the layers that a model has, in two steps.
func replayFile(c config.Config) string {
	var b strings.Builder
	for k, step := range []int{2, 6} {
		for layer := range c.Layers() {
			if strings.Contains(c.Dynamic.Kind, "prune") && layer > 0 && layer < c.Layers()-1 {
				fmt.Fprintf(&b, `{"step":%d,"layer":%d,"density":%v}`+"\n", step, layer, math.Pow(0.5/float64(1+k), float64(layer)/8))
			}
			if strings.Contains(c.Dynamic.Kind, "freeze") {
				fmt.Fprintf(&b, `{"step":%d,"layer":%d,"frozen":%d}`+"\n", step, layer, map[bool]int{true: 1}[layer < 3+2*k])
			}
		}
	}
	return b.String()
}
