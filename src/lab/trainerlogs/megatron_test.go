package trainerlogs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/lab/layouts"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// megatronOutput writes what Megatron-LM would print for a run whose steps our simulator ran. Layers of a
// kind have these seconds of forward and backward.
type megatronOutput struct {
	layout               string
	stages, chunks       int
	replicas             int
	microbatches, blocks int
	seconds              [kinds][2]float64
	noise                float64
	prefix               string // of a launcher
	rnd                  *rand.Rand
}

func (o megatronOutput) text(t *testing.T) string {
	t.Helper()
	s, err := Run{Layout: o.layout, Stages: o.stages, Chunks: o.chunks}.shape()
	expect.OK(t, err)
	kind := schedule.Kind1F1B
	if o.chunks > 1 {
		kind = schedule.KindInterleaved
	}
	plan, err := schedule.New(kind, o.stages, o.chunks, o.microbatches)
	expect.OK(t, err)
	costs := make([]cost.Stage, s.Virtual())
	for v, c := range s.virtual {
		for k, n := range c {
			costs[v].Forward += float64(n) * o.seconds[k][0]
			costs[v].Input += float64(n) * o.seconds[k][1]
		}
	}
	spans := sim.Run(sim.Step{Schedule: plan, Costs: costs, Spans: true}).Spans
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, o.prefix+format+"\n", args...) }
	all := s.total()
	line("using world size: %d, data-parallel size: %d, context-parallel size: 1, hierarchical context-parallel sizes: None, tensor-model-parallel size: 1, pipeline-model-parallel size: %d", o.stages*o.replicas, o.replicas, o.stages)
	line("  num_layers ...................................... %d", all[block])
	line("times across ranks (ms):")
	line("  model-and-optimizer-setup:")
	line("     rank  0: 5123.45")
	for n := range o.blocks {
		iteration, share := max(1, n*10), 1.0
		switch n {
		case 0:
			share = 0.5 // one slow iteration, divided by an interval of ten
		case 1:
			share = 1.4
		}
		line(" [2026-11-28 10:00:%02d.000000] iteration %8d/     500 | consumed samples: %12d | elapsed time per iteration (ms): 5233.1 | global batch size:    16 |", n%60, iteration, 16*iteration)
		line("times across ranks (ms):")
		line("  forward-backward:")
		line("     rank  0: 5200.00")
		for _, timer := range []struct {
			name     string
			backward bool
		}{{"forward-compute", false}, {"backward-compute", true}} {
			line("  %s:", timer.name)
			for stage, list := range spans {
				sum := 0.0
				for _, span := range list {
					if (span.Op != schedule.F) == timer.backward {
						sum += span.End - span.Start
					}
				}
				for replica := range o.replicas {
					line("     rank %2d: %.2f", stage*o.replicas+replica, 1000*share*sum*(1+o.noise*o.rnd.NormFloat64()))
				}
			}
		}
		line("  forward-recv:")
		line("     rank  1: 12.34")
	}
	return b.String()
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	expect.OK(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func read(flag, path string, r Run) (Costs, error) {
	for _, s := range Sources {
		if s.Flag == flag {
			return s.Read(path, r)
		}
	}
	panic(flag)
}

// known are the costs of the worked example: E 0.5 and 0.5, t 10 and 20, m 12 and 25, L 14 and 28 ms.
var known = [kinds][2]float64{{0.0005, 0.0005}, {0.010, 0.020}, {0.012, 0.025}, {0.014, 0.028}}

// TestMegatronCostsAreRecovered: from logs of simulated runs with 2 % noise on every printed time, the
// seconds of a block, of every virtual stage and of the model come back within 2 %. Embedding and head take
// a small share of a stage whose noise they have: they come back within 2 % of that stage, and within three
// of the standard errors that the fit gives.
func TestMegatronCostsAreRecovered(t *testing.T) {
	for _, c := range []megatronOutput{
		{layout: "Et*9|t*8|t*8|t*7L", stages: 4, chunks: 1, replicas: 1, microbatches: 16, blocks: 22},
		{layout: "Et*4|(t*4|)*6t*4L", stages: 4, chunks: 2, replicas: 2, microbatches: 16, blocks: 22, prefix: "[default7]:"},
		{layout: "Et*3|(tt|)*5tm|L", stages: 8, chunks: 1, replicas: 1, microbatches: 32, blocks: 22},
	} {
		t.Run(c.layout, func(t *testing.T) {
			c.seconds, c.noise, c.rnd = known, 0.02, rand.New(rand.NewPCG(3, 4))
			r := Run{Layout: c.layout, Stages: c.stages, Microbatches: c.microbatches}
			out, err := read("megatron-log", written(t, c.text(t)), r)
			expect.OK(t, err)
			_, err = layouts.NewChain(out.Table.Layers)
			expect.OK(t, err)
			if len(out.Table.Unseparated) > 0 {
				t.Errorf("unseparated %v", out.Table.Unseparated)
			}
			s, err := r.shape()
			expect.OK(t, err)
			var got [kinds]float64
			for _, k := range out.Kinds {
				i := slices.Index(names[:], k.Name)
				got[i] = k.Seconds.Seconds()
				t.Logf("%-9s %.5f s, want %.5f: %+.2f %%, deviation %.2f %%, residual %.2f %%, %d samples",
					k.Name, got[i], total(i), 100*(got[i]/total(i)-1), 100*k.Deviation, 100*k.Residual, k.Samples)
				if off := math.Abs(got[i] - total(i)); off > 3*k.Deviation*got[i] || i == block && off > 0.02*total(i) || k.Samples < 20 {
					t.Errorf("%s: %v s of %d samples, want %v", k.Name, got[i], k.Samples, total(i))
				}
			}
			for stage := range c.stages {
				have, want := 0.0, 0.0
				for chunk := range c.chunks {
					for k, n := range s.virtual[s.Place(stage, chunk)] {
						have, want = have+float64(n)*got[k], want+float64(n)*total(k)
					}
				}
				if math.Abs(have-want) > 0.02*want {
					t.Errorf("stage %d: %v s, want %v", stage, have, want)
				}
			}
		})
	}
}

// total returns the known seconds of a kind.
func total(kind int) float64 { return known[kind][0] + known[kind][1] }

// TestDeviationIsThatOfTheCosts: over many logs, the seconds of a block vary by the deviation that each log
// gives.
func TestDeviationIsThatOfTheCosts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	squares, said := 0.0, 0.0
	const logs = 200
	for range logs {
		s, err := Run{Layout: "Et*9|t*8|t*8|t*7L"}.shape()
		expect.OK(t, err)
		m := measured{}
		for v, c := range s.virtual {
			p := part{layers: c}
			for pass := range weight {
				seconds := 0.0
				for k, n := range c {
					seconds += float64(n) * known[k][pass]
				}
				for range 20 {
					p.samples[pass] = append(p.samples[pass], seconds*(1+0.02*rnd.NormFloat64()))
				}
			}
			p.name = fmt.Sprint(v)
			m.parts = append(m.parts, p)
		}
		c, err := fit(m, s)
		expect.OK(t, err)
		squares += math.Pow(c.Kinds[block].Seconds.Seconds()/0.030-1, 2) / logs
		said += c.Kinds[block].Deviation / logs
	}
	if got := math.Sqrt(squares); said < 0.8*got || said > 1.6*got {
		t.Errorf("the seconds vary by %.3g, and the deviations are %.3g", got, said)
	}
}

func TestKindsThatALayoutDoesNotSeparate(t *testing.T) {
	o := megatronOutput{layout: "Et*4|t*4L", stages: 2, chunks: 1, replicas: 1, microbatches: 8, blocks: 5, seconds: known}
	o.rnd = rand.New(rand.NewPCG(1, 1))
	c, err := read("megatron-log", written(t, o.text(t)), Run{Layout: o.layout, Microbatches: 8})
	expect.OK(t, err)
	if len(c.Table.Unseparated) != 1 || c.Table.Unseparated[0].String() != "block.N, embedding, head" {
		t.Fatalf("%v", c.Table.Unseparated)
	}
	n := c.Table.Unseparated[0]
	if n["embedding"]+4*n["block.N"] != 0 || n["head"]+4*n["block.N"] != 0 {
		t.Errorf("%v", n)
	}
	seconds := 0.0
	for _, layer := range c.Table.Layers {
		seconds += layer.Seconds()
	}
	if want := 0.001 + 8*0.030 + 0.042; math.Abs(seconds-want) > 1e-4 {
		t.Errorf("%v s of all layers, want %v", seconds, want)
	}
}

// TestMegatronRefuses: one line for each kind of log that gives no costs.
func TestMegatronRefuses(t *testing.T) {
	o := megatronOutput{layout: "Et*2|tt|tt|ttL", stages: 4, chunks: 1, replicas: 2, microbatches: 8, blocks: 4, seconds: known, rnd: rand.New(rand.NewPCG(1, 1))}
	good := o.text(t)
	lines := strings.SplitAfter(good, "\n")
	last := strings.LastIndex(good, "  backward-compute:")
	for _, c := range []struct {
		name, text string
		run        Run
		want       string
	}{
		{"a log cut in the middle", good[:last+60], Run{}, "the times of iteration 30 are cut off by the end of the file"},
		{"cut in a number", good[:strings.LastIndex(good, "  forward-recv:")-3], Run{}, "the times of iteration 30 are cut off by the end of the file"},
		{"cut before its third block", strings.Join(lines[:len(lines)/2], ""), Run{}, "times of 2 intervals, want at least 3"},
		{"a rank is missing", strings.ReplaceAll(good, "     rank  3:", "     wank  3:"), Run{}, "forward-compute of rank 4 behind that of rank 2"},
		{"the last ranks are missing", strings.ReplaceAll(strings.ReplaceAll(good, "     rank  7:", "     "), "rank  6:", ""), Run{}, "want one for each of 8 ranks: ranks are missing"},
		{"minmax", strings.ReplaceAll(good, "times across ranks (ms):", "(min, max) time across ranks (ms):"), Run{}, `"time across ranks (ms):" names no rank, want --timing-log-level 2 --timing-log-option all`},
		{"max", strings.ReplaceAll(good, "times across ranks (ms):", "max time across ranks (ms):"), Run{}, "want --timing-log-level 2 --timing-log-option all"},
		{"level 1", strings.ReplaceAll(strings.ReplaceAll(good, "forward-compute:", "optimizer:"), "backward-compute:", "optimizer-inner-step:"), Run{}, "no forward-compute for iteration 1, want --timing-log-level 2"},
		{"level 0", "iteration 1/ 5 |\n", Run{}, `no line "times across ranks (ms):", want --timing-log-level 2`},
		{"overlapped experts", strings.ReplaceAll(good, "backward-compute:", "backward-recv:"), Run{}, "--overlap-moe-expert-parallel-comm"},
		{"two runs", good + good, Run{}, "a second start: two runs in one file"},
		{"two runs without their starts", good + strings.Join(lines[5:], ""), Run{}, "iteration 1 behind 30: two runs in one file"},
		{"a run that went on", good + strings.ReplaceAll(strings.Join(lines[5:], ""), "iteration        1/", "iteration       35/"), Run{}, "iteration 35 behind 30: two runs in one file"},
		{"other layers", good, Run{Layout: "Et*3|tt|tt|ttL"}, "num_layers is 8, and --layout has 9 t"},
		{"other stages", good, Run{Layout: "Et*4|tt*3L"}, "the run has 4 pipeline stages, and --layout or --stages 2"},
		{"fewer letters than stages", good, Run{Layout: "E||t|L", Stages: 4}, "3 layers, want at least one for each of the 4 stages"},
		{"fewer virtual stages than stages", good, Run{Layout: "Et*4|tt*3L", Stages: 4}, "2 virtual stages, want a multiple of --stages (4)"},
		{"no layout", good, Run{Layout: "Et*2|tt|tt|tt"}, "the last layer is no L"},
		{"neither notation", good, Run{Layout: "8;8"}, `"8;8", want a layout such as Et*8|t*8L, or the blocks of each virtual stage`},
		{"costs of zero", regexp.MustCompile(`(rank  [01]:) .*`).ReplaceAllString(good, "$1 0.00"), Run{Stages: 4}, "stage 0: forward seconds 0, want a number above 0"},
		{"no number", regexp.MustCompile(`(rank  1:) .*`).ReplaceAllString(good, "$1 nan"), Run{}, "forward-compute of rank 1 is nan, want milliseconds from 0 to 1e+09"},
		{"a negative number", regexp.MustCompile(`(rank  1:) .*`).ReplaceAllString(good, "$1 -3.00"), Run{}, "forward-compute of rank 1 is -3.00, want milliseconds"},
		{"a huge number", regexp.MustCompile(`(rank  1:) .*`).ReplaceAllString(good, "$1 99999999999999.00"), Run{}, "forward-compute of rank 1 is 99999999999999.00, want milliseconds"},
		{"other order of ranks", strings.Replace(good, "  num_layers", "  use_tp_pp_dp_mapping ............................ True\n  num_layers", 1), Run{}, "--use-tp-pp-dp-mapping"},
		{"no microbatches", good, Run{Microbatches: -1}, "want --microbatches"},
		{"empty", "", Run{}, "no line"},
	} {
		r := c.run
		if r.Layout == "" {
			r.Layout = o.layout
		}
		r.Microbatches += o.microbatches
		if c.run.Microbatches < 0 {
			r.Microbatches = 0
		}
		_, err := read("megatron-log", written(t, c.text), r)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := read("megatron-log", "absent", Run{Layout: o.layout, Microbatches: 8}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	if _, err := read("megatron-log", written(t, good), Run{Layout: o.layout, Microbatches: 8}); err != nil {
		t.Errorf("the log itself: %v", err)
	}
}
