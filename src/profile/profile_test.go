package profile_test

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"

	"github.com/google/go-cmp/cmp"
)

// share returns what the first of all ranks shares.
func share(p profile.Profiler, m profile.Measurement, world *comm.Group) []byte {
	var text []byte
	if world.Rank() == 0 {
		text = p.Share(m)
	}
	text, err := world.Bcast(0, text)
	if err != nil {
		return nil
	}
	return text
}

// TestMeasureIsInChainOrder: the table has the costs of every layer at its place in the chain:
// the medians of its spans, of the slowest replica. Stages have parts of the chain that do not
// follow each other.
func TestMeasureIsInChainOrder(t *testing.T) {
	shape := model.Config{Blocks: 4, Hidden: 8, Heads: 2, Sequence: 4, Vocab: 16, Seed: 1}
	vee := partition.Map{Stages: 2, Chunks: 2, Vee: true}
	where := layout.New(partition.Partition{0, 1, 3, 4, 6}, schedule.Schedule{Map: vee, Microbatches: 3}, 2, layout.StageMajor)
	owners := where.Owners() // 0, 4 and 5 on stage 0
	err := local.Run(4, func(tr comm.Transport) error {
		world := comm.New(tr, comm.Options{})
		stage, replica := tr.Rank()/2, tr.Rank()%2
		stages, err := world.Split(replica, stage)
		if err != nil {
			return err
		}
		replicas, err := world.Split(stage, replica)
		if err != nil {
			return err
		}
		dev := cpu.New(device.NewWall())
		x := &model.Exec{Device: dev, Backend: ref.New(tensor.F32), Stream: dev.NewStream(), B: 1, T: shape.Sequence}
		s, err := model.NewStage(shape, owners.Layers(stage), dev, tensor.F32)
		if err != nil {
			return err
		}
		var spans []trace.Span
		for _, l := range s.Layers {
			for m, seconds := range []float64{1, 3, 2} { // the median is 2
				begin := float64(10 * m)
				spans = append(spans, trace.Span{Op: trace.F, Layer: l.ID, Microbatch: m, Tokens: x.N(), Start: begin, End: begin + seconds*float64(1+l.ID)*float64(1+replica)})
			}
		}
		counts := []cost.Count{{Name: "left", Layer: s.Layers[0].ID, Microbatch: replica, Values: []int64{int64(tr.Rank()), -1}}}
		p := profile.Profiler{Stages: stages, Replicas: replicas, Counts: []dynamic.Counts{{Name: "other"}, {Name: "left", Values: []string{"rank"}}}}
		seen, err := p.Measure(x, s, where, pipeline.Result{Spans: spans, Counts: counts, Instructions: []trace.Span{{Op: trace.F, Layer: -1, Microbatch: tr.Rank() / 2, Start: 1.0 / 3}}}, profile.Own{Joules: 2.5, Balancing: float64(tr.Rank())}, dynamic.Change{})
		if err != nil {
			return err
		}
		if told := p.Take(share(p, seen, world)); !cmp.Equal(told, seen.Counts) && tr.Rank() == 0 || len(told) != 2 {
			t.Errorf("rank %d is told %v", tr.Rank(), told)
		}
		if tr.Rank() > 0 {
			if seen.Layers != nil {
				t.Errorf("rank %d: %v, want nothing", tr.Rank(), seen)
			}
			return nil
		}
		for id, l := range seen.Layers {
			output := shape.Chain()[id].Leaves().Bytes(x, x.N())
			if want := 2 * float64(1+id) * 2; l.Name != shape.Names()[id] || l.Forward != want || l.Output != output {
				t.Errorf("layer %d: %q, %v s, %d bytes go on; want %q, %v s, %d", id, l.Name, l.Forward, l.Output, shape.Names()[id], want, output)
			}
		}
		for id, row := range seen.Samples {
			for m, seconds := range []float64{1, 3, 2} {
				if want := seconds * float64(1+id) * 2; row[m].Forward != want {
					t.Errorf("layer %d, microbatch %d: %v s, want %v", id, m, row[m].Forward, want)
				}
			}
		}
		if diff := cmp.Diff([]cost.CountSum{
			{Name: "left", Layer: 0, Microbatches: 2, Values: []int64{0 + 1, -2}, Peaks: -2}, {Name: "left", Layer: 1, Microbatches: 2, Values: []int64{2 + 3, -2}, Peaks: -2},
		}, seen.Counts); diff != "" {
			t.Error(diff)
		}
		if len(seen.Instructions) != 2 || len(seen.Instructions[1]) != 1 || seen.Instructions[1][0].Microbatch != 1 {
			t.Errorf("instructions %v, want those of both stages of the first replica", seen.Instructions)
		}
		if seen.Balancing != 3 {
			t.Errorf("balancing took %v s, want the longest, 3", seen.Balancing)
		}
		if want := 2.5 * float64(stages.Size()*replicas.Size()); seen.Joules != want {
			t.Errorf("%v J, want %v", seen.Joules, want)
		}
		if n := len(seen.Layers); n != shape.Layers() {
			t.Errorf("%d layers, want %d", n, shape.Layers())
		}
		return nil
	})
	expect.OK(t, err)
}
