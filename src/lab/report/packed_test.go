package report

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// packedPhases is a made-up run of two replicas. In each phase the costs of layers fall by a
// factor, and layers are on fewer stages. Each stage is a node.
var packedPhases = []struct {
	first, stages int
	factor        float64
	nodes         []int // of the stages
}{
	{0, 8, 1, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	{12, 6, 0.8, []int{0, 1, 2, 4, 6, 7}},
	{24, 4, 0.61, []int{0, 1, 4, 6}},
}

const packedLast = 36 // steps

// packedRun writes and reads a run of packedPhases. Each step takes a minute. With slurm, the nodes
// of the first packing are given back ten minutes later, and Slurm refuses those of the second.
// Without slurm no nodes are given back, and their ranks wait.
func packedRun(t testing.TB, slurm bool) Run {
	t.Helper()
	c := config.Default()
	c.Run.Name, c.Repack.Kind, c.Elastic.Release = "packed", "sustain", "park"
	c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = 8, 2, 16
	c.Model.Blocks, c.Train.Steps = 22, packedLast
	if slurm {
		c.Elastic.Release = "slurm"
	}
	p := record.Provenance{Host: "n0", Date: "2026-01-01T00:00:00Z"}
	for _, host := range packedPhases[0].nodes {
		p.Hosts = append(p.Hosts, nodeNames(host)...)
	}
	p.Hosts = append(p.Hosts, p.Hosts...)
	slices.Sort(p.Hosts)
	dir := filepath.Join(t.TempDir(), "run")
	run, err := record.Open(dir, c.TOML(), p)
	expect.OK(t, err)
	for i, phase := range packedPhases {
		end := packedLast
		if i+1 < len(packedPhases) {
			end = packedPhases[i+1].first
		}
		writePacked(t, run, i, end)
		if i > 0 && slurm {
			detail := record.Released{
				Mode: "slurm", NodesBefore: nodeNames(packedPhases[i-1].nodes...), Nodes: nodeNames(phase.nodes...),
				Checkpoint: 1.25, Goodbye: 0.5, Scontrol: 0.03, Tries: i, Time: minute(phase.first + 10),
			}
			if i == 1 {
				detail.Ranks = []int{6, 7, 10, 11}
			} else {
				detail.Nodes, detail.Refused = detail.NodesBefore, "slurm_update error: Job has no slurmdbd"
			}
			event(t, run, record.Event{Step: phase.first, Kind: record.Release, Seconds: 1.78}, detail)
		}
	}
	expect.OK(t, run.Close())
	r, err := ReadAll(dir)
	expect.OK(t, err)
	return r
}

// minute returns when a step begins.
func minute(step int) time.Time {
	return time.Date(2026, 1, 1, 0, step, 0, 0, time.UTC)
}

func nodeNames(nodes ...int) (list []string) {
	for _, n := range nodes {
		list = append(list, "n"+string(rune('0'+n)))
	}
	return list
}

func event(t testing.TB, run *record.Run, e record.Event, detail any) {
	t.Helper()
	var err error
	e.Clock = "virtual"
	e.Detail, err = record.Detail(detail)
	expect.OK(t, err)
	expect.OK(t, run.Event(e))
}

// writePacked writes the steps of a phase until one, and what came before it.
func writePacked(t testing.TB, run *record.Run, index, end int) {
	t.Helper()
	phase := packedPhases[index]
	order, err := schedule.New(schedule.Kind1F1B, phase.stages, 1, 16)
	expect.OK(t, err)
	costs := make([]cost.Layer, 24)
	for l := range costs {
		x := 1e-3 * phase.factor
		costs[l] = cost.Layer{Forward: x, BackwardInput: x, BackwardWeight: x}
	}
	table := cost.Table{Clock: "virtual", Layers: costs}
	at := layout.New(evenly(costs, phase.stages, false), order, 2, layout.StageMajor)
	for _, node := range phase.nodes {
		at.Ranks = append(at.Ranks, 2*node, 2*node+1)
	}
	result := sim.Run(sim.Step{Schedule: order, Costs: table.Stages(at.Cuts, order.Map), Spans: true})
	seconds, share := result.Makespan(), record.Float(0)
	if index > 0 {
		before := packedPhases[index-1]
		share = record.Float(packedSeconds / seconds)
		event(t, run, record.Event{Step: phase.first - 1, Kind: record.Repack, Bytes: 3_000_000, Seconds: 0.0065, Before: 0.2, Predicted: 0.19}, record.Packed{
			Kind: "sustain", StagesBefore: before.stages, Stages: phase.stages, RanksBefore: 2 * before.stages, Ranks: 2 * phase.stages,
			NodesBefore: before.stages, Nodes: phase.stages, Microbatches: 16, Exact: true, Throughput: share,
			Deciding: 0.002, Moving: 0.004, Resizing: 0.0005,
		})
		event(t, run, record.Event{Step: phase.first - 2, Kind: record.Dynamic}, map[string]any{"what": "prune", "sparsity": 1 - phase.factor})
	}
	for step := phase.first; step < end; step++ {
		expect.OK(t, run.Step(record.Metrics{
			Step: step, Clock: "virtual", Loss: 3, Schedule: "1f1b", Cuts: at.Cuts, LayersPerStage: at.LayersPerStage(), Ranks: 2 * phase.stages, Nodes: phase.stages,
			StepSeconds: record.Float(seconds), Makespan: record.Float(seconds), Predicted: record.Float(seconds), Throughput: share, BatchSize: 32,
			TokensPerSecond: record.Float(4096 / seconds), BubbleRatio: record.Float(result.BubbleRatio()), Bottleneck: 1, Optimum: 1, Headroom: 1, Sparsity: record.Float(1 - phase.factor),
			Idle: trace.Idle{Busy: seconds}, Time: minute(step + 1), WallSeconds: record.Float(60 * (step + 1)),
		}))
	}
	expect.OK(t, run.Trace(trace.Step{Step: phase.first + 1, Clock: "virtual", Stages: result.Spans}))
	expect.OK(t, run.Costs(record.Phase{
		Phase: cost.Phase{Step: phase.first, Steps: end - phase.first, Table: table},
		Run:   &record.Course{Layout: at, Step: phase.first, Makespan: seconds},
	}))
}

// packedSeconds is what a step of the first phase takes: 16 microbatches and 7 to fill and
// drain the pipeline, of 3 layers of 3 ms on each stage.
const packedSeconds = (16 + 7) * 9e-3
