package pipeline_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/kernel/ref"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// tiny is a model whose chain has 10 layers.
var tiny = model.Config{Blocks: 8, Hidden: 16, Heads: 2, Sequence: 8, Vocab: 32, Tied: true, Seed: 5}

const microbatches = 4

// feed makes up the data of a microbatch.
func feed(x *model.Exec, vocab int) func(m int) ([]int32, []int32) {
	return func(m int) ([]int32, []int32) {
		draw := random.Keyed(11, uint64(m))
		tokens, targets := make([]int32, x.N()), make([]int32, x.N())
		for i := range tokens {
			tokens[i], targets[i] = draw.Int32N(int32(vocab)), draw.Int32N(int32(vocab))
		}
		return tokens, targets
	}
}

// equal returns the cuts that give every virtual stage an equal share of the chain.
func equal(c model.Config, m partition.Map) partition.Partition {
	var cuts partition.Partition
	for v := range m.Virtual() + 1 {
		cuts = append(cuts, v*c.Layers()/m.Virtual())
	}
	return cuts
}

// member is one rank of a pipeline.
type member struct {
	*pipeline.Runner
	x      *model.Exec
	s      *model.Stage
	groups pipeline.Groups
	feed   pipeline.Feed
}

// replan makes the runner again.
func (m *member) replan(cuts partition.Partition, plan schedule.Schedule, o pipeline.Options) (err error) {
	if m.Runner != nil {
		m.Close()
	}
	m.Runner, err = pipeline.New(m.x, layout.New(cuts, plan, m.groups.Replicas.Size(), layout.StageMajor), m.s, m.groups, o)
	return err
}

// runner returns one rank of a pipeline whose virtual stages have equal shares of
// the chain.
func runner(t comm.Transport, c model.Config, plan schedule.Schedule, clock *device.Clock, backend kernel.Backend) (*member, error) {
	return runnerOf(t, c, plan, clock, backend, comm.Options{Clock: clock})
}

// runnerOf is runner for as many replicas as the ranks of t make up, which stand
// side by side stage by stage.
func runnerOf(t comm.Transport, c model.Config, plan schedule.Schedule, clock *device.Clock, backend kernel.Backend, o comm.Options) (*member, error) {
	world := comm.New(t, o)
	replicas := world.Size() / plan.Map.Stages
	group := world
	var err error
	if replicas > 1 {
		if group, err = world.Split(t.Rank()%replicas, t.Rank()/replicas); err != nil {
			return nil, err
		}
	}
	column, err := world.Split(t.Rank()/replicas, t.Rank()%replicas)
	if err != nil {
		return nil, err
	}
	dev := cpu.New(clock)
	x := &model.Exec{Device: dev, Backend: backend, Stream: dev.NewStream(), B: 2, T: c.Sequence}
	x.Scale = 1 / float64(x.N()*microbatches*replicas)
	if err := x.Reserve(c); err != nil {
		return nil, err
	}
	cuts := equal(c, plan.Map)
	c.Replica = column.Rank()
	s, err := model.NewStage(c, plan.Map.Owners(cuts).Layers(group.Rank()), dev, backend.DType())
	if err != nil {
		return nil, err
	}
	m := &member{x: x, s: s, groups: pipeline.Groups{Stages: group, Replicas: column}}
	data := feed(x, c.Vocab)
	m.feed = func(microbatch int) ([]int32, []int32) { return data(column.Rank()*microbatches + microbatch) }
	return m, m.replan(cuts, plan, pipeline.Options{})
}

// newSchedule returns the schedule of a kind; a list is one for unequal stages with
// few microbatches in flight, of two chunks in a V, of others in a loop.
func newSchedule(t *testing.T, kind schedule.Kind, stages, chunks int) schedule.Schedule {
	t.Helper()
	if kind == schedule.KindList {
		o := schedule.ListOptions{Map: partition.Map{Stages: stages, Chunks: chunks, Vee: chunks == 2}, Microbatches: microbatches}
		for v := range o.Map.Virtual() {
			o.Costs = append(o.Costs, cost.Stage{Forward: float64(1 + v%3), Input: 2, Weight: float64(1 + v%2)})
		}
		for range stages {
			o.InFlight = append(o.InFlight, chunks+1)
		}
		s, _ := schedule.Search(o, schedule.List(o), 50, 0)
		return s
	}
	s, err := schedule.New(kind, stages, chunks, microbatches)
	expect.OK(t, err)
	return s
}

// adam is the update of tests.
var adam = kernel.AdamW{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: 1}

// steps trains three steps and returns what was agreed after each.
func steps(r *member, decay float64) ([]pipeline.Agreement, error) {
	var list []pipeline.Agreement
	for range 3 {
		done, err := r.Step(r.feed)
		if err != nil {
			return nil, err
		}
		agreed, err := r.Agree(done.Losses, pipeline.Nothing)
		if err != nil {
			return nil, err
		}
		a := adam
		a.Decay = decay
		if err := r.Update(a); err != nil {
			return nil, err
		}
		list = append(list, agreed)
	}
	return list, nil
}

// outcome is what must not depend on the layout or the schedule.
type outcome struct {
	losses []pipeline.Agreement // of every step
	hashes []string             // of every layer
}

// train trains three steps and returns what came of them.
func train(t *testing.T, c model.Config, plan schedule.Schedule) outcome {
	t.Helper()
	return trainReplicas(t, c, plan, 1)
}

func trainReplicas(t *testing.T, c model.Config, plan schedule.Schedule, replicas int) outcome {
	t.Helper()
	out := outcome{hashes: make([]string, c.Layers())}
	err := local.Run(plan.Map.Stages*replicas, func(tr comm.Transport) error {
		clock := device.NewWall()
		r, err := runnerOf(tr, c, plan, clock, ref.New(tensor.F32), comm.Options{Clock: clock})
		if err != nil {
			return err
		}
		losses, err := steps(r, 0.1)
		if err != nil {
			return err
		}
		for _, l := range r.s.Layers {
			sum, err := l.Hash()
			if err != nil {
				return err
			}
			if r.groups.Replicas.Rank() == 0 {
				out.hashes[l.ID] = fmt.Sprintf("%x", sum)
			}
		}
		if tr.Rank() == 0 {
			out.losses = losses
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s, %+v: %v\n%s", plan.Kind, plan.Map, err, schedule.Format(plan.Lists))
	}
	return out
}

// agree fails the test where two outcomes differ.
func (o outcome) agree(t *testing.T, want outcome, plan schedule.Schedule) {
	t.Helper()
	for i := range want.losses {
		if o.losses[i] != want.losses[i] {
			t.Errorf("%s, %+v, step %d: %+v, one stage has %+v", plan.Kind, plan.Map, i, o.losses[i], want.losses[i])
		}
	}
	for id, h := range want.hashes {
		if o.hashes[id] != h {
			t.Errorf("%s, %+v: layer %d differs", plan.Kind, plan.Map, id)
		}
	}
}

// TestStagesAgreeWithOne: the loss, the gradient norm and the updated weights are the same bits on
// one stage and on several, in every schedule (law 3). Each number of stages runs with the head
// whole or in slices, with DYNMO_LONG=1 with both.
func TestStagesAgreeWithOne(t *testing.T) {
	for _, parts := range []int{1, 4} {
		c := tiny
		c.HeadShards = parts
		want := train(t, c, newSchedule(t, schedule.KindGPipe, 1, 1))
		if want.losses[0].Loss <= want.losses[2].Loss {
			t.Errorf("the loss does not fall: %v", want.losses)
		}
		for _, v := range []struct {
			kind   schedule.Kind
			chunks int
			stages []int
		}{
			{schedule.KindGPipe, 1, []int{2, 3, 7, c.Layers()}},
			{schedule.Kind1F1B, 1, []int{1, 2, 3, 7, c.Layers()}},
			{schedule.KindInterleaved, 2, []int{1, 2, 4, 3}},
			{schedule.KindInterleaved, 3, []int{1, 2, 3}},
			{schedule.KindZBH1, 1, []int{1, 2, 3, 7, c.Layers()}},
			{schedule.KindZBH2, 1, []int{1, 2, 3, 7, c.Layers()}},
			{schedule.KindZBV, 2, []int{1, 2, 3, 5}},
			{schedule.KindZBInterleaved, 2, []int{2, 3, 1}},
			{schedule.KindZBInterleaved, 3, []int{3, 2}},
			{schedule.KindList, 2, []int{2, 3}},
			{schedule.KindList, 3, []int{2, 3}},
		} {
			for i, stages := range v.stages {
				if os.Getenv("DYNMO_LONG") != "1" && (parts == 1) != (i%2 == 0) {
					continue
				}
				t.Run(fmt.Sprintf("slices=%d/%s/V=%d/P=%d", parts, v.kind, v.chunks, stages), func(t *testing.T) {
					plan := newSchedule(t, v.kind, stages, v.chunks)
					train(t, c, plan).agree(t, want, plan)
				})
			}
		}
	}
}

// TestTiedSlicesAreRowsOfTheEmbedding: a tied head trains the same embedding in
// slices on several stages as whole on one, and every slice ends with its rows.
func TestTiedSlicesAreRowsOfTheEmbedding(t *testing.T) {
	train := func(parts int, plan schedule.Schedule) (losses, embedding []float64) {
		c := tiny
		c.Tied, c.HeadShards = true, parts
		borrowed := make([][]float64, c.Layers())
		err := local.Run(plan.Map.Stages, func(tr comm.Transport) error {
			r, err := runner(tr, c, plan, device.NewWall(), ref.New(tensor.F64))
			if err != nil {
				return err
			}
			agreed, err := steps(r, 0)
			if err != nil {
				return err
			}
			if tr.Rank() == 0 {
				for _, a := range agreed {
					losses = append(losses, a.Loss)
				}
			}
			for _, tie := range c.Ties() {
				for _, id := range []int{tie.Owner, tie.Borrower} {
					if p := r.s.Param(id, tie.Weight); p != nil {
						borrowed[id] = append([]float64(nil), tensor.Of[float64](p.W)...)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%d slices: %v", parts, err)
		}
		embedding = borrowed[0]
		ties := c.Ties()
		if len(ties) != parts {
			t.Fatalf("%d ties for %d slices", len(ties), parts)
		}
		for k, tie := range ties {
			lo, hi := c.Slice(k)
			if !slices.Equal(borrowed[tie.Borrower], embedding[lo*c.Hidden:hi*c.Hidden]) {
				t.Errorf("%d slices: slice %d does not have rows %d to %d of the embedding", parts, k, lo, hi)
			}
		}
		return losses, embedding
	}
	losses, embedding := train(1, newSchedule(t, schedule.Kind1F1B, 1, 1))
	for _, plan := range []schedule.Schedule{newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindZBV, 3, 2)} {
		for _, parts := range []int{2, 4, 5} {
			gotLosses, got := train(parts, plan)
			for i, loss := range losses {
				if math.Abs(gotLosses[i]-loss) > 1e-10 {
					t.Errorf("%s, %d slices, step %d: loss %v, want %v", plan.Kind, parts, i, gotLosses[i], loss)
				}
			}
			for i, w := range embedding {
				if math.Abs(got[i]-w) > 1e-10 {
					t.Fatalf("%s, %d slices: embedding[%d] = %v, want %v", plan.Kind, parts, i, got[i], w)
				}
			}
		}
	}
}

// perBlock makes every block cost one second in each direction and everything
// else nothing: each of the three has one product with the QKV matrix.
func perBlock(c *kernel.Call) float64 {
	switch c.Op {
	case kernel.MatmulForward, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight:
		if c.O == 3*tiny.Hidden {
			return 1
		}
	}
	return 0
}

// TestBubbleOfEqualStages: stages are equal and messages free. The bubble ratio of GPipe and 1F1B
// is then (P-1)/(M+P-1). That of interleaved 1F1B with V chunks on a stage is (P-1)/(V·M+P-1) (law
// 4; Narayanan et al. 2021).
func TestBubbleOfEqualStages(t *testing.T) {
	for _, v := range []struct {
		kind   schedule.Kind
		chunks int
		stages []int
	}{
		{schedule.KindGPipe, 1, []int{1, 2, 4, 8}},
		{schedule.Kind1F1B, 1, []int{1, 2, 4, 8}},
		{schedule.KindInterleaved, 2, []int{1, 2, 4}},
		{schedule.KindInterleaved, 4, []int{1, 2}},
	} {
		for _, stages := range v.stages {
			plan := newSchedule(t, v.kind, stages, v.chunks)
			n := plan.Map.Virtual()
			cuts := partition.Partition{0} // two more layers at the ends, which cost nothing
			for i := 1; i < n; i++ {
				cuts = append(cuts, 1+i*tiny.Blocks/n)
			}
			cuts = append(cuts, tiny.Layers())
			layers, instructions := make([][]trace.Span, stages), make([][]trace.Span, stages)
			err := local.Run(stages, func(tr comm.Transport) error {
				clock := device.NewVirtual()
				clock.Pause() // what the executor itself takes does not count: only known costs
				c := tiny
				c.Tied = false
				r, err := runner(tr, c, plan, clock, null.New(clock, perBlock))
				if err != nil {
					return err
				}
				r.s.Free()
				if r.s, err = model.NewStage(c, plan.Map.Owners(cuts).Layers(tr.Rank()), r.x.Device, tensor.F32); err != nil {
					return err
				}
				if err := r.replan(cuts, plan, pipeline.Options{}); err != nil {
					return err
				}
				done, err := r.Step(r.feed)
				layers[tr.Rank()], instructions[tr.Rank()] = done.Spans, done.Instructions
				return err
			})
			expect.OK(t, err)
			p, vm := float64(stages), float64(v.chunks*microbatches)
			for what, spans := range map[string][][]trace.Span{"layers": layers, "instructions": instructions} {
				got := trace.Step{Stages: spans}.Summary().BubbleRatio()
				if want := (p - 1) / (vm + p - 1); math.Abs(got-want) > 1e-12 {
					t.Errorf("%s, %d chunks, %d stages: bubble ratio %v by %s, want %v", v.kind, v.chunks, stages, got, what, want)
				}
			}
			for stage, list := range plan.Lists {
				same := len(list) == len(instructions[stage])
				for i, span := range instructions[stage] {
					same = same && span.Microbatch == list[i].Microbatch && span.Chunk == list[i].Chunk && span.Op.String() == list[i].Op.String()
				}
				if !same {
					t.Errorf("%s, %d stages: stage %d has spans %v, want those of %v", v.kind, stages, stage, instructions[stage], list)
				}
			}
		}
	}
}
