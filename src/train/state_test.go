package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// fed is a rank without a device or layers. Its measurements are made up.
type fed struct {
	*Rank
	said []string // by step: the decision
}

// layersOf is the number of layers in these tests' chains.
const layersOf = 12

func newFed(t testing.TB, c config.Config) *fed {
	t.Helper()
	r := &Rank{Setup: Setup{Config: c, World: comm.New(local.World(1)[0], comm.Options{}), Device: cpu.New(device.NewVirtual()), Backend: ref.New(tensor.F32)}}
	f, err := PlanFirst(c)
	expect.OK(t, err)
	r.problem, r.layout = f.problem, f.layout
	expect.OK(t, r.begin())
	return &fed{Rank: r}
}

// step makes the rank measure a step and decide after it. Costs of layers change at every fortieth
// step. From the twentieth step on tokens leave in front of the last four layers. Work after a step
// takes longer if layers moved.
func (f *fed) step(t testing.TB, step int) {
	t.Helper()
	stages, microbatches := f.layout.Stages(), f.Config.Parallel.Microbatches
	m := profile.Measurement{Measurement: cost.Measurement{Table: plantest.Chain(layersOf, 3, uint64(step/40))}, Balancing: f.spent}
	m.Clock, m.Joules = "virtual", -1
	draw := random.Keyed(9, uint64(step))
	loads := make([]float64, stages)
	for l, owner := range f.layout.Owners() {
		if (l/3+step/40)%4 == 0 {
			m.Layers[l] = m.Layers[l].WithSeconds(m.Layers[l].Stage().Scale(6))
		}
		row := make([]cost.Stage, microbatches)
		var work []float64
		if step >= 20 && l >= layersOf-4 {
			work = make([]float64, microbatches)
		}
		for i := range row {
			row[i] = m.Layers[l].Stage().Scale(1 + 0.02*draw.ExpFloat64())
			if work != nil {
				work[i] = 2 * draw.Float64() // above 1 if the fullest replica has more than its even share
				row[i] = row[i].Scale(0.1 + 0.9*work[i])
			}
			loads[owner] += row[i].Seconds()
		}
		m.Samples, m.Work = append(m.Samples, row), append(m.Work, work)
	}
	m.Summary = trace.Summary{End: slices.Max(loads) * (1 + 0.1*draw.Float64())}
	change := dynamic.Change{}
	if step > 0 && step%40 == 0 {
		change = dynamic.Change{Kind: "prune", Costs: true}
	}
	m = f.profiler.Observe(m, f.layout, change)
	next, why, err := f.Balancer.Decide(m, f.layout)
	expect.OK(t, err)
	f.spent = 1e-4
	if !next.Equal(f.layout) {
		f.spent = 0.01 * (1 + draw.Float64())
	}
	why.Diffusion = nil
	f.said = append(f.said, fmt.Sprintf("%v %v %+v %v", next.Cuts, next.Schedule.Lists, why, m.Estimate))
	f.layout = next
}

// saved returns the state of a rank in the form of a checkpoint.
func (f *fed) saved(t testing.TB) []byte {
	t.Helper()
	state := checkpoint.NewState(f.ranks(f.World.Hosts()), f.keepers(), f.Balancer.KnownReference(), f.products)
	state.Spent = f.spent
	text, err := json.Marshal(state)
	expect.OK(t, err)
	return text
}

func settings(kind schedule.Kind, replicas int, every string) config.Config {
	c := plantest.Settings(kind, layersOf, 4, 8)
	c.Parallel.Replicas, c.Balance.Every = replicas, every
	return c
}

// TestResumedDecisions: a run is saved, ends at any step, and resumes. Its estimates and decisions
// equal those of a run that never ended, to the last bit.
func TestResumedDecisions(t *testing.T) {
	for _, c := range []config.Config{
		settings(schedule.Kind1F1B, 1, "auto"), settings(schedule.Kind1F1B, 2, "3"), settings(schedule.KindList, 1, "6"), settings(schedule.KindZBV, 2, "auto"),
	} {
		name := fmt.Sprintf("%s, %d replicas, every %s", c.Schedule.Kind, c.Parallel.Replicas, c.Balance.Every)
		whole, parts := newFed(t, c), newFed(t, c)
		moves := 0
		for step := range 90 {
			if step > 0 && (step < 4 || step%11 == 0) {
				text := parts.saved(t)
				again := newFed(t, c)
				again.layout = parts.layout
				if why, err := again.recall(c, text); why != "" || err != nil {
					t.Fatalf("%s, step %d: begins anew: %s (%v)", name, step, why, err)
				}
				if twice := again.saved(t); !bytes.Equal(text, twice) {
					t.Fatalf("%s, step %d: saved\n%s\nand again\n%s", name, step, text, twice)
				}
				parts = again
			}
			before := whole.layout
			whole.step(t, step)
			parts.step(t, step)
			if got, want := parts.said[len(parts.said)-1], whole.said[step]; got != want {
				t.Fatalf("%s, step %d:\n%s\nwant\n%s", name, step, got, want)
			}
			if !whole.layout.Equal(before) {
				moves++
			}
		}
		if moves < 2 {
			t.Errorf("%s: layers moved %d times", name, moves)
		}
	}
}

// TestStateBeginsAnew: a damaged or impossible state is ignored completely, and the reason is
// returned.
func TestStateBeginsAnew(t *testing.T) {
	c := settings(schedule.Kind1F1B, 1, "auto")
	run := newFed(t, c)
	for step := range 45 {
		run.step(t, step)
	}
	text := string(run.saved(t))
	anew := newFed(t, c).saved(t)
	set := func(change func(*config.Config)) config.Config {
		c := c
		change(&c)
		return c
	}
	swap := func(from, to string) string {
		if !strings.Contains(text, from) {
			t.Errorf("%q is not in %.300s", from, text)
		}
		return strings.Replace(text, from, to, 1)
	}
	for _, c := range []struct {
		name string
		now  config.Config
		text string
		want string
	}{
		{"other stages", set(func(c *config.Config) { c.Parallel.Stages = 3 }), text, "[parallel] of the checkpoint differs"},
		{"another balancer", set(func(c *config.Config) { c.Balance.Kind = "diffusion" }), text, "[balance] of the checkpoint differs"},
		{"another schedule", set(func(c *config.Config) { c.Schedule.Kind = "zb-h1" }), text, "[schedule] of the checkpoint differs"},
		{"another clock", c, swap(`"clock":"virtual"`, `"clock":"wall"`), "the clock of the checkpoint differs"},
		{"other kernels", c, swap(`"kernels":"ref"`, `"kernels":"cpu"`), "device.kernel of the checkpoint differs"},
		{"another network", set(func(c *config.Config) { c.Comm.BandwidthBytes = 1e9 }), text, "comm.bandwidth_bytes of the checkpoint differs"},
		{"other hosts", c, swap(`"hosts":["`, `"hosts":["not-`), "the checkpoint's ranks ran on other hosts"},
		{"more hosts", c, swap(`"hosts":[`, `"hosts":["more",`), "the checkpoint's ranks ran on other hosts"},
		{"lost", c, `{"version":1,"clock":"virtual","kernels":"ref","hosts":["` + run.World.Peer(0).Host + `"],"lost":"balancer: NaN"}`, "could not be saved: balancer: NaN"},
		{"version", c, swap(`"version":1`, `"version":2`), "is of version 2, this program reads 1"},
		{"truncated", c, text[:len(text)/2], "unexpected end of JSON input"},
		{"no object", c, `[]`, "cannot unmarshal array"},
		{"unknown key", c, swap(`"spent"`, `"spend"`), "spend: unknown key; the nearest is spent"},
		{"key twice", c, swap(`"spent"`, `"spent":1,"spent"`), "spent: stands twice"},
		{"negative seconds", c, swap(`"spent":`, `"spent":-`), "spent: -"},
		{"NaN", c, swap(`"asked":`, `"asked":NaN`), "invalid character 'N'"},
		{"beyond numbers", c, swap(`"price":`, `"price":1e999,"p":`), "p: unknown key"},
		{"part missing", c, swap(`"balancer":`, `"dynamism":`), `parts: ["dynamism" "profiler"], want ["balancer" "profiler"]`},
		{"parts missing", c, `{"version":1,"clock":"virtual","kernels":"ref","hosts":["` + run.World.Peer(0).Host + `"]}`, `parts: [], want ["balancer" "profiler"]`},
		{"negative count", c, swap(`"balancer":{"steps":`, `"balancer":{"steps":-`), "balancer: steps: -45"},
		{"absurd count", c, swap(`"balancer":{"steps":`, `"balancer":{"steps":999999999999999`), "balancer: steps: 99999999999999945"},
		{"beyond counts", c, swap(`"balancer":{"steps":`, `"balancer":{"steps":9999999999999999999999`), "cannot unmarshal number"},
		{"negative price", c, swap(`"price":`, `"price":-`), "balancer: price: -"},
		{"key in a part", c, swap(`"decided":`, `"deceived":`), "balancer: deceived: unknown key; the nearest is decided"},
		{"lines in a key", c, swap(`"spent"`, `"a\n`+strings.Repeat("b", 1000)+`"`), "a\\nbbbb"},
		{"no steps", c, swap(`"steps":[{"layers"`, `"steps":[],"pace":[{"layers"`), "profiler.pace: stands twice"},
		{"work of a layer more", c, swap(`"work":[`, `"work":[1,`), "profiler: steps[0].work: 13 numbers, want 12"},
		{"a line more", c, swap(`"lines":[`, `"lines":[{},`), "profiler: lines: 13, want 12"},
		{"no step", c, swap(`"steps":[{"layers"`, `"steps":[null,{"layers"`), "profiler: steps[0] is missing"},
		{"a layer more", c, swap(`"home":[`, `"home":[0,`), "profiler: home: 13 layers, want 12"},
		{"a stage that is not", c, swap(`"home":[0`, `"home":[-1`), "profiler: home: stage -1 of layer 0"},
		{"no pace", c, swap(`"pace":[1`, `"pace":[0`), "profiler: pace: 0, want a number from 1e-12"},
		{"a stage less", c, swap(`"doubts":[0,`, `"doubts":[`), "profiler: doubts: 3 numbers, want 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFed(t, c.now)
			first, err := json.Marshal(f.layout)
			expect.OK(t, err)
			why, err := f.recall(run.Config, []byte(c.text))
			if !strings.Contains(why, c.want) || strings.Contains(why, "\n") || len(why) > 500 || err != nil {
				t.Errorf("begins anew: %q (%v), want %q", why, err, c.want)
			}
			if now, err := json.Marshal(f.layout); !bytes.Equal(now, first) || err != nil {
				t.Errorf("layout %s", now)
			}
			if reflect.DeepEqual(c.now, run.Config) && !bytes.Equal(f.saved(t), anew) {
				t.Error("a part of what was refused is used")
			}
		})
	}
	if why, err := newFed(t, c).recall(c, nil); why != "" || err != nil {
		t.Errorf("without a state: %q (%v)", why, err)
	}
}

// broken is a balancer that cannot be saved.
type broken struct{ policy.Balancer }

func (broken) Save() ([]byte, error)               { return json.Marshal(math.NaN()) }
func (broken) Restore([]byte, layout.Layout) error { return nil }

// TestStateLost: state that cannot be saved does not keep layers from being saved. The loss is
// reported on resume.
func TestStateLost(t *testing.T) {
	c := settings(schedule.Kind1F1B, 1, "auto")
	run := newFed(t, c)
	run.Balancer = broken{run.Balancer}
	run.step(t, 0)
	why, err := newFed(t, c).recall(c, run.saved(t))
	if want := "the checkpoint's state could not be saved: balancer: json: unsupported value: NaN"; why != want || err != nil {
		t.Errorf("%q (%v), want %q", why, err, want)
	}
}

// TestHostileNumbers: whichever number of a state is changed, the state is ignored, or the run
// continues with it.
func TestHostileNumbers(t *testing.T) {
	c := settings(schedule.KindList, 1, "2")
	run := newFed(t, c)
	for step := range 30 {
		run.step(t, step)
	}
	text := run.saved(t)
	places := regexp.MustCompile(`[\[:,]-?[0-9][0-9.e-]*`).FindAllIndex(text, -1)
	draw := random.Keyed(3)
	taken := 0
	for range 150 {
		at := places[draw.IntN(len(places))]
		number := []string{"0", "-1", "1", "12", "1e-320", "1e-12", "1e12", "1e300", "9007199254740993"}[draw.IntN(9)]
		again := newFed(t, c)
		again.layout = run.layout
		why, err := again.recall(c, slices.Concat(text[:at[0]+1], []byte(number), text[at[1]:]))
		expect.OK(t, err)
		if why == "" {
			taken++
			again.step(t, 30)
			again.step(t, 40)
		}
	}
	if taken < 15 || taken > 135 {
		t.Errorf("%d of 150 states were taken", taken)
	}
}

// FuzzState: whatever a state contains, it is ignored, or the run continues with it.
func FuzzState(f *testing.F) {
	c := settings(schedule.Kind1F1B, 1, "2")
	run := newFed(f, c)
	run.step(f, 0)
	f.Add(run.saved(f))
	for step := 1; step < 12; step++ {
		run.step(f, step)
	}
	f.Add(run.saved(f))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		again := newFed(t, c)
		_, err := again.recall(c, text)
		expect.OK(t, err)
		for step := range 3 {
			again.step(t, step+39)
		}
	})
}

// TestReferenceSurvives: the time of the dense model survives a resume even if the rest of the
// state is ignored, on other stages too. It does not survive a change of clock or kernels.
func TestReferenceSurvives(t *testing.T) {
	c := settings(schedule.Kind1F1B, 1, "auto")
	c.Repack.Kind = "sustain"
	run := newFed(t, c)
	for step := range 45 { // layers change only at the fortieth step
		run.step(t, step)
	}
	known := *run.Balancer.KnownReference()
	if !(known.Seconds > 0) {
		t.Fatalf("%+v of the dense model", known)
	}
	text := string(run.saved(t))
	for _, r := range []struct {
		name string
		set  func(*config.Config)
		text string
		want plan.Reference
		says string
	}{
		{"as it was", func(*config.Config) {}, text, known, ""},
		{"other stages", func(c *config.Config) { c.Parallel.Stages = 2 }, text, known, "[parallel] of the checkpoint differs"},
		{"another packing", func(c *config.Config) { c.Repack.Tolerance = 0.1 }, text, known, "[repack] of the checkpoint differs"},
		{"another network", func(c *config.Config) { c.Comm.LatencySeconds = 1 }, text, plan.Reference{}, "the dense model's seconds are not known: comm.latency_seconds"},
		{"another clock", func(*config.Config) {}, strings.Replace(text, `"clock":"virtual"`, `"clock":"wall"`, 1), plan.Reference{}, "are not known: the clock"},
		{"damaged", func(c *config.Config) { c.Parallel.Stages = 2 }, strings.Replace(text, `"dense":{"reference":`, `"dense":{"reference":-`, 1), plan.Reference{}, "reference: -"},
		{"from before there was one", func(c *config.Config) { c.Parallel.Stages = 2 }, text[:strings.Index(text, `,"dense"`)] + "}", plan.Reference{}, "[parallel] of"},
	} {
		now := c
		r.set(&now)
		f := newFed(t, now)
		if r.says == "" { // the run has packed the model itself
			f.layout = run.layout
		}
		why, err := f.recall(c, []byte(r.text))
		expect.OK(t, err)
		var got plan.Reference
		if now := f.Balancer.KnownReference(); now != nil {
			got = *now
		}
		got.Seen = r.want.Seen
		if got != r.want || !strings.Contains(why, r.says) || (why == "") != (r.says == "") {
			t.Errorf("%s: %+v, %q, want %+v, %q", r.name, got, why, r.want, r.says)
		}
	}
}

// TestConclusion: all ranks receive the root's layout, with a schedule made from costs.
func TestConclusion(t *testing.T) {
	f := newFed(t, settings(schedule.KindList, 1, "auto"))
	costs, cuts := plantest.Chain(layersOf, 3, 1), slices.Clone(f.layout.Cuts)
	cuts[1]++
	next := f.problem.Step(costs, f.layout).Layout(cuts)
	text, err := json.Marshal(conclusion{Shared: []byte{7}, Move: &relocation{Next: next, Behind: true, Own: []int{2}}})
	expect.OK(t, err)
	var got conclusion
	expect.OK(t, json.Unmarshal(text, &got))
	if m := got.Move; !m.Next.Equal(next) || next.Equal(f.layout) || !m.Behind || !slices.Equal(m.Own, []int{2}) || !slices.Equal(got.Shared, []byte{7}) {
		t.Errorf("%+v, %+v, want %+v", got, got.Move, next)
	}
}
