package report

import (
	"math"
	"path/filepath"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// sample is an invented run. It is pruned to half before step prune, and balanced after step move.
// It has timelines of the first step and of the steps around both changes.
type sample struct {
	kind                         schedule.Kind
	stages, chunks, microbatches int
	layers, steps, prune, move   int
}

var small = sample{schedule.Kind1F1B, 4, 1, 16, 14, 40, 10, 14}

// write simulates the run and returns its directory.
func (s sample) write(t testing.TB) string {
	t.Helper()
	c := config.Default()
	c.Run.Name = "sample <b>&amp;</b> </script>"
	c.Schedule.Kind, c.Schedule.Chunks = string(s.kind), max(2, s.chunks)
	c.Parallel.Stages, c.Parallel.Microbatches = s.stages, s.microbatches
	c.Model.Blocks, c.Train.Steps = s.layers-2, s.steps
	dir := filepath.Join(t.TempDir(), "run")
	run, err := record.Open(dir, c.TOML(), record.Provenance{Revision: "abc", Host: "<node>", CPU: "one", Date: "2026-01-01T00:00:00Z"})
	expect.OK(t, err)
	list, err := schedule.New(s.kind, s.stages, s.chunks, s.microbatches)
	expect.OK(t, err)
	must := func(err error) {
		expect.OK(t, err)
	}
	now, known := 0.0, map[[2]bool]sim.Result{}
	for step := range s.steps {
		pruned, moved := step >= s.prune, step > s.move
		costs := make([]cost.Layer, s.layers)
		for l := range costs {
			x := 1e-3
			if pruned {
				x /= 1 + 3*float64(l)/float64(s.layers)
			}
			costs[l] = cost.Layer{Forward: x, BackwardInput: x, BackwardWeight: x}
		}
		table := cost.Table{Layers: costs}
		cuts := evenly(costs, list.Map.Virtual(), moved)
		r, ok := known[[2]bool{pruned, moved}]
		if !ok {
			r = sim.Run(sim.Step{Schedule: list, Costs: table.Stages(cuts, list.Map), Spans: true})
			known[[2]bool{pruned, moved}] = r
		}
		seconds, at := r.Makespan(), layout.New(cuts, list, 1, layout.StageMajor)
		loss := 3 + 3*math.Exp(-float64(step)/8)
		if step == s.steps/2 {
			loss = math.NaN()
		}
		idle := r.Idle() / float64(s.stages)
		sparsity := record.Float(0)
		if pruned {
			sparsity = 0.5
		}
		must(run.Step(record.Metrics{
			Step: step, Clock: "virtual", Loss: record.Float(loss), Schedule: string(s.kind), Cuts: cuts, Vee: s.kind == schedule.KindZBV, LayersPerStage: at.LayersPerStage(),
			StepSeconds: record.Float(seconds + 1e-3), BalanceSeconds: 2e-4, Makespan: record.Float(seconds), Predicted: record.Float(seconds),
			TokensPerSecond: record.Float(4096 / seconds), BubbleRatio: record.Float(r.BubbleRatio()), Imbalance: record.Float(trace.Imbalance(r.Busy)),
			Bottleneck: 1, Optimum: 1, Headroom: 1.1, Sparsity: sparsity,
			Idle: trace.Idle{Busy: r.Makespan() - idle, Inherent: idle / 2, Imbalance: idle / 4, Memory: idle / 8, Communication: idle / 8, Balancing: 2e-4},
		}))
		if begins := step == 0 || step == s.prune || step == s.move+1; begins {
			end, change := s.steps, ""
			switch {
			case step < s.prune:
				end = s.prune
			case step <= s.move:
				end, change = s.move+1, "prune"
			}
			must(run.Costs(record.Phase{
				Phase: cost.Phase{Step: step, Steps: end - step, Table: table, Change: change},
				Run:   &record.Course{Layout: at, Step: step, Makespan: seconds},
			}))
		}
		if step == s.prune {
			must(run.Event(record.Event{Step: step, Kind: record.Dynamic, Clock: "virtual", Seconds: 0.01, Detail: map[string]any{"what": "prune", "sparsity": 0.5, "kept": 1e6, "prunable": 2e6}}))
		}
		if step == s.move {
			must(run.Event(record.Event{Step: step, Kind: record.Migrate, Clock: "virtual", Bytes: 12345678, Seconds: 0.002}))
		}
		if step == 0 || step >= s.move-2 && step <= s.move+2 {
			timeline := trace.Step{Step: step, Clock: "virtual"}
			for _, spans := range r.Spans {
				var later []trace.Span
				for _, sp := range spans {
					sp.Start, sp.End = sp.Start+now, sp.End+now
					later = append(later, sp)
				}
				later = append(later, trace.Span{Op: trace.Optimizer, Layer: -1, Microbatch: -1, Start: now + seconds, End: now + seconds + 1e-3})
				timeline.Stages = append(timeline.Stages, later)
			}
			must(run.Trace(timeline))
		}
		now += seconds + 1.2e-3
	}
	must(run.Close())
	return dir
}

// evenly cuts layers into pieces of about equal numbers, or of about equal
// seconds.
func evenly(layers []cost.Layer, pieces int, bySeconds bool) partition.Partition {
	weight := func(l cost.Layer) float64 {
		if bySeconds {
			return l.Seconds()
		}
		return 1
	}
	total := 0.0
	for _, l := range layers {
		total += weight(l)
	}
	cuts, sum := partition.Partition{0}, 0.0
	for i, l := range layers {
		if sum += weight(l); len(cuts) < pieces && sum >= total*float64(len(cuts))/float64(pieces) {
			cuts = append(cuts, i+1)
		}
	}
	return append(cuts, len(layers))
}

// read returns the sample as the page reads it.
func (s sample) read(t testing.TB) Run {
	t.Helper()
	r, err := ReadAll(s.write(t))
	expect.OK(t, err)
	return r
}
