package sim_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// TestSumsAreThePipelines: on the virtual clock a step of several replicas, with the sums of its
// gradients, ends within 1 % of the simulator's time. A bucket has one layer or several, and links
// or passes are slow. Links of the virtual clock do not slow each other down. The simulator's
// replicas send to the others one behind the other, so its links are faster by that factor. Where
// replicas update slices, the step follows an update: first forwards wait for the weights. Every
// instruction starts, ends and waits as the simulator says, within 0.2 % of the step: slices are whole
// slabs, so they are not quite equal.
func TestSumsAreThePipelines(t *testing.T) {
	open := 0
	for _, tc := range []struct {
		kind             schedule.Kind
		stages, replicas int
		hidden           int
		link             sim.Link
		sums             schedule.Sums
	}{
		{schedule.Kind1F1B, 2, 2, 208, sim.Link{Latency: 0.1, Bandwidth: 2e6}, schedule.Sums{}},
		{schedule.Kind1F1B, 2, 2, 128, sim.Link{Latency: 0.1, Bandwidth: 3e5}, schedule.Sums{Rounded: true}},
		{schedule.KindZBH1, 2, 3, 208, sim.Link{Latency: 0.5, Bandwidth: 4e6}, schedule.Sums{}},
		{schedule.KindZBV, 2, 2, 208, sim.Link{Latency: 0.1, Bandwidth: 4e5}, schedule.Sums{}},
		{schedule.KindInterleaved, 1, 4, 128, sim.Link{Latency: 1}, schedule.Sums{}},
		{schedule.KindInterleaved, 1, 4, 128, sim.Link{Latency: 1}, schedule.Sums{Group: 2}},
		{schedule.Kind1F1B, 2, 2, 256, sim.Link{Latency: 0.1, Bandwidth: 1e6}, schedule.Sums{Sliced: true}},
		{schedule.KindZBV, 2, 3, 256, sim.Link{Latency: 0.5, Bandwidth: 4e5}, schedule.Sums{Sliced: true}},
		{schedule.KindInterleaved, 1, 4, 256, sim.Link{Latency: 1, Bandwidth: 1e7}, schedule.Sums{Sliced: true}},
		{schedule.Kind1F1B, 2, 2, 256, sim.Link{Latency: 0.1, Bandwidth: 1e6}, schedule.Sums{Sliced: true, Narrow: true}},
		{schedule.KindZBV, 2, 2, 256, sim.Link{Latency: 0.1, Bandwidth: 4e5}, schedule.Sums{Sliced: true, Narrow: true, Rounded: true}},
	} {
		plan, err := newPlan(tc.kind, tc.stages)
		expect.OK(t, err)
		e := newExperiment(plan, 1, 0)
		e.shape.Hidden, e.shape.Vocab, e.shape.Blocks, e.link, e.alike = tc.hidden, 16*tc.replicas-3, 8/plan.Map.Chunks, tc.link, true
		if tc.sums.Narrow {
			e.dtype = tensor.BF16
		}
		e.cuts = e.cuts[:0]
		for v := range plan.Map.Virtual() + 1 {
			e.cuts = append(e.cuts, v*e.shape.Layers()/plan.Map.Virtual())
		}
		got, spans, err := e.executeReplicas(tc.replicas, tc.sums)
		expect.OK(t, err)
		want := e.simulateReplicas(tc.replicas, tc.sums)
		late, waited := 0.0, 0.0 // the largest difference of a start, end or wait; the longest wait for weights
		for d, r := range want.Replicas {
			for stage, list := range r.Spans {
				if len(list) != len(spans[d][stage]) {
					t.Fatalf("%s, %+v: replica %d, stage %d: %d instructions, simulated %d", tc.kind, tc.sums, d, stage, len(spans[d][stage]), len(list))
				}
				for i, a := range spans[d][stage] {
					late = max(late, math.Abs(a.Start-list[i].Start), math.Abs(a.End-list[i].End), math.Abs(a.Waited-list[i].Waited))
					waited = max(waited, a.Waited)
				}
			}
		}
		if late > 0.002*want.Seconds {
			t.Errorf("%s, %d x %d, hidden %d, %+v: an instruction differs from the simulated one by %.3f s", tc.kind, tc.stages, tc.replicas, tc.hidden, tc.sums, late)
		}
		if tc.sums.Sliced && waited < 0.01*want.Seconds {
			t.Errorf("%s, %+v: the longest wait for weights is %.3f s: the test shows nothing", tc.kind, tc.sums, waited)
		}
		if off := want.Seconds/got - 1; math.Abs(off) > 0.01 {
			t.Errorf("%s, %d x %d, hidden %d, %+v: %.3f s executed, %.3f simulated (%+.1f %%; %.3f in the open)", tc.kind, tc.stages, tc.replicas, tc.hidden, tc.sums, got, want.Seconds, 100*off, want.Exposed())
		}
		t.Logf("%s, %d x %d, hidden %d, %+v: %.3f s executed, %.3f simulated, %.3f in the open", tc.kind, tc.stages, tc.replicas, tc.hidden, tc.sums, got, want.Seconds, want.Exposed())
		if want.Exposed() > 0.05*want.Seconds {
			open++
		}
	}
	if open < 2 {
		t.Errorf("sums take more than 5 %% of %d steps, want 2 or the test shows nothing", open)
	}
}

// layers returns the chain with the seconds of every layer for any microbatch.
func (e experiment) layers(x *model.Exec) []cost.Layer {
	list := model.Outline(e.shape, x)
	for l := range list {
		list[l] = list[l].WithSeconds(cost.Stage{Forward: e.seconds(l, 0, trace.F), Input: e.seconds(l, 0, trace.I), Weight: e.seconds(l, 0, trace.W)})
	}
	return list
}

// executeReplicas runs a step of several replicas. It returns when the last gradient was summed, and
// the instructions by replica and stage.
func (e experiment) executeReplicas(replicas int, sums schedule.Sums) (float64, [][][]trace.Span, error) {
	stages, end := e.plan.Map.Stages, 0.0
	instructions := make([][][]trace.Span, replicas)
	for d := range instructions {
		instructions[d] = make([][]trace.Span, stages)
	}
	var mu sync.Mutex
	err := local.Run(stages*replicas, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause() // only known costs count
		world := comm.New(tr, comm.Options{Clock: clock, Network: comm.Network{Latency: e.link.Latency, Bandwidth: e.link.Bandwidth}})
		l := layout.New(e.cuts, e.plan, replicas, layout.StageMajor)
		stage, replica := l.Mesh.Stage(tr.Rank()), l.Mesh.Replica(tr.Rank())
		column, err := world.Split(replica, stage)
		if err != nil {
			return err
		}
		row, err := world.Split(stage, replica)
		if err != nil {
			return err
		}
		var calls []float64
		x := e.exec(clock, &calls, 1)
		if err := x.Reserve(e.shape); err != nil {
			return err
		}
		shape := e.shape
		if sums.Sliced {
			shape.Replica, shape.Shards = replica, replicas
		}
		s, err := model.NewStage(shape, e.plan.Map.Owners(e.cuts).Layers(stage), x.Device, e.dtype)
		if err != nil {
			return err
		}
		r, err := pipeline.New(x, l, s, pipeline.Groups{Stages: column, Replicas: row}, pipeline.Options{Sums: sums})
		if err != nil {
			return err
		}
		data := make([]int32, x.N())
		var done pipeline.Result
		start := begin(0)
		for n := range 2 {
			calls, start = e.calls(stage), begin(n)
			clock.Reach(start)
			if n > 0 {
				if err := r.Update(kernel.AdamW{}); err != nil {
					return err
				}
			}
			if done, err = r.Step(func(int) ([]int32, []int32) { return data, data }); err != nil {
				return err
			}
			if !sums.Sliced {
				break
			}
		}
		if len(calls) > 0 {
			return fmt.Errorf("%d calls were not made", len(calls))
		}
		mu.Lock()
		defer mu.Unlock()
		for _, span := range done.Spans {
			end = max(end, span.End-start)
		}
		for _, span := range done.Instructions {
			span.Start, span.End = span.Start-start, span.End-start
			instructions[replica][stage] = append(instructions[replica][stage], span)
		}
		return nil
	})
	return end, instructions, err
}

// simulateReplicas simulates the same step.
func (e experiment) simulateReplicas(replicas int, sums schedule.Sums) sim.ReplicasResult {
	m := e.plan.Map
	layers := e.layers(e.exec(device.NewVirtual(), nil, 1))
	link := e.link
	link.Bandwidth *= float64(replicas - 1)
	bytes := make([]int64, m.Virtual())
	for v := range bytes {
		bytes[v] = layers[e.cuts[v+1]-1].Output
	}
	network, mesh := sim.Network{Node: link}, layout.Mesh{Stages: m.Stages, Replicas: replicas, Order: layout.StageMajor}
	return sim.Replicas(sim.Step{
		Schedule: e.plan, Costs: cost.Table{Layers: layers}.Stages(e.cuts, m), Bytes: bytes,
		Network: network, Mesh: mesh, Rounds: sim.NewRounds(network, mesh, nil, sums), Spans: true,
	}, e.cuts, layers)
}
