package launch

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/kernel/cpu"
)

// curveSettings are the settings of the golden loss curve. The corpus is the source text of a
// module whose version go.mod pins.
func curveSettings(t *testing.T) config.Config {
	t.Helper()
	const module = "github.com/BurntSushi/toml"
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("no source of module %s: %v", module, err)
	}
	c := config.Default()
	c.Data.Path, c.Data.Extensions = dir, []string{".go"}
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence = 3, 32, 2, 32
	c.Parallel.Stages, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = 2, 4, 4
	c.Train.Steps, c.Train.Hash = 40, true
	c.Optimizer.LR, c.Optimizer.Warmup = 5e-3, 5
	c.Dynamic.Kind = "prune"
	c.Assign("prune.start", 10, "prune.every", 5, "prune.times", 4)
	c.Run.Clock = "wall"
	return c
}

// TestLossCurve reproduces the golden loss curve: ref to the digits printed,
// cpu within 1e-3.
func TestLossCurve(t *testing.T) {
	c := curveSettings(t)
	c.Device.Kernel = "ref"
	got := goRun(t, c, nil)
	var text strings.Builder
	for i, loss := range got.losses {
		fmt.Fprintf(&text, "%d %.9f\n", i, float64(loss))
	}
	expect.Golden(t, filepath.Join("testdata", "ref_loss.txt"), text.String())
	if _, err := cpu.New(1); err != nil {
		t.Skipf("cpu kernels: %v", err)
	}
	c.Device.Kernel = "cpu"
	for i, loss := range goRun(t, c, nil).losses {
		if d := math.Abs(float64(loss - got.losses[i])); !(d < 1e-3) {
			t.Errorf("step %d: cpu's loss %v is %v from ref's %v", i, loss, d, got.losses[i])
		}
	}
}

// TestLossFalls: 300 steps of a 6-block model on the Go source tree reduce the loss below 2 nats
// per byte.
func TestLossFalls(t *testing.T) {
	if os.Getenv("DYNMO_LONG") != "1" {
		t.Skip("minutes long: set DYNMO_LONG=1")
	}
	c := config.Default()
	// Many short sequences: in 300 steps a model learns mostly from nearby bytes, and many contexts
	// teach that better than long ones.
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence = 6, 384, 8, 32
	c.Model.Tied = false
	c.Parallel.Stages, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = 2, 4, 32
	c.Train.Steps, c.Train.Hash = 300, true
	c.Optimizer.LR, c.Optimizer.MinLR, c.Optimizer.Warmup, c.Optimizer.Beta2 = 1.2e-3, 1e-5, 30, 0.98
	losses := goRun(t, c, nil).losses
	tail := losses[len(losses)-10:]
	mean := 0.0
	for _, l := range tail {
		mean += float64(l) / float64(len(tail))
	}
	t.Logf("loss %v at the start, %v over the last ten steps", losses[0], mean)
	if !(mean < 2) {
		t.Errorf("loss %v after 300 steps, want under 2", mean)
	}
}

// TestClocksAgree: on two stages with a core and a thread each, medians of wall and virtual clock
// over 20 steps agree within 10 %.
func TestClocksAgree(t *testing.T) {
	if os.Getenv("DYNMO_LONG") != "1" {
		t.Skip("needs two idle cores: set DYNMO_LONG=1")
	}
	c := config.Default()
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence = 8, 256, 8, 128
	c.Parallel.Stages, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = 2, 8, 2
	c.Train.Steps = 25
	c.Balance.Kind = "uniform"
	c.Data.LimitBytes = 1 << 20
	seconds := make(map[string]float64)
	for _, clock := range []string{"wall", "virtual"} {
		c.Run.Clock = clock
		var list []float64
		for _, m := range (&session{}).train(t, c).metrics[5:] { // the first steps warm up
			list = append(list, float64(m.StepSeconds))
		}
		slices.Sort(list)
		seconds[clock] = list[10]
	}
	ratio := seconds["virtual"] / seconds["wall"]
	t.Logf("median step: wall %v s, virtual %v s, virtual/wall %.3f", seconds["wall"], seconds["virtual"], ratio)
	if math.Abs(ratio-1) > 0.1 {
		t.Errorf("virtual/wall %v, want within 10 %% of 1", ratio)
	}
}
