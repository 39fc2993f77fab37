package pipeline_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/kernel/ref"
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

// runner returns the runner of one rank of a pipeline without replicas, and
// its layers: an equal share of the chain.
func runner(t comm.Transport, c model.Config, kind schedule.Kind, clock *device.Clock, backend kernel.Backend) (*pipeline.Runner, *model.Stage, error) {
	group := comm.New(t, comm.Options{Clock: clock})
	alone, err := group.Split(group.Rank(), 0)
	if err != nil {
		return nil, nil, err
	}
	dev := cpu.New(clock)
	x := &model.Exec{Device: dev, Backend: backend, Stream: dev.NewStream(), B: 2, T: c.Sequence}
	x.Scale = 1 / float64(x.N()*microbatches)
	if err := x.Reserve(c); err != nil {
		return nil, nil, err
	}
	p, n := group.Rank(), group.Size()
	var cuts partition.Partition
	for stage := range n + 1 {
		cuts = append(cuts, stage*c.Layers()/n)
	}
	s, err := model.NewStage(c, cuts[p], cuts[p+1], dev, backend.DType())
	if err != nil {
		return nil, nil, err
	}
	r := &pipeline.Runner{Exec: x, Group: group, Replicas: alone, Feed: feed(x, c.Vocab)}
	sched, err := schedule.New(kind, n, 1, microbatches)
	if err != nil {
		return nil, nil, err
	}
	return r, s, r.Plan(cuts, s, sched)
}

// steps trains three steps and returns what was agreed after each.
func steps(r *pipeline.Runner, s *model.Stage, decay float64) ([]pipeline.Agreement, error) {
	var list []pipeline.Agreement
	for range 3 {
		done, err := r.Step(s)
		if err != nil {
			return nil, err
		}
		agreed, err := r.Agree(s, done.Losses, false)
		if err != nil {
			return nil, err
		}
		if err := r.Update(s, kernel.AdamW{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: decay, GradScale: 1}); err != nil {
			return nil, err
		}
		list = append(list, agreed)
	}
	return list, nil
}

// TestStagesAgreeWithOne: the loss, the gradient norm and the updated weights
// are the same bits on one stage and on several, in every schedule (law 3),
// with the head whole and in slices.
func TestStagesAgreeWithOne(t *testing.T) {
	for _, parts := range []int{1, 4} {
		t.Run(fmt.Sprintf("slices=%d", parts), func(t *testing.T) {
			c := tiny
			c.HeadShards = parts
			stagesAgreeWithOne(t, c)
		})
	}
}

func stagesAgreeWithOne(t *testing.T, c model.Config) {
	type outcome struct {
		losses []pipeline.Agreement
		hashes map[int]string
	}
	run := func(stages int, kind schedule.Kind) outcome {
		ends := make([]outcome, stages)
		err := local.Run(stages, func(tr comm.Transport) error {
			r, s, err := runner(tr, c, kind, device.NewWall(), ref.New(tensor.F32))
			if err != nil {
				return err
			}
			end := outcome{hashes: make(map[int]string)}
			if end.losses, err = steps(r, s, 0.1); err != nil {
				return err
			}
			for _, l := range s.Layers {
				end.hashes[l.ID] = fmt.Sprintf("%x", l.Hash())
			}
			ends[tr.Rank()] = end
			return nil
		})
		if err != nil {
			t.Fatalf("%d stages, %s: %v", stages, kind, err)
		}
		all := outcome{ends[0].losses, make(map[int]string)}
		for _, e := range ends {
			for id, h := range e.hashes {
				all.hashes[id] = h
			}
		}
		return all
	}
	want := run(1, schedule.KindGPipe)
	if want.losses[0].Loss <= want.losses[2].Loss {
		t.Errorf("the loss does not fall: %v", want.losses)
	}
	for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B} {
		for _, stages := range []int{1, 2, 3, 7, c.Layers()} {
			got := run(stages, kind)
			for i := range want.losses {
				if got.losses[i] != want.losses[i] {
					t.Errorf("%s, %d stages, step %d: %+v, one stage has %+v", kind, stages, i, got.losses[i], want.losses[i])
				}
			}
			for id, h := range want.hashes {
				if got.hashes[id] != h {
					t.Errorf("%s, %d stages: layer %d differs", kind, stages, id)
				}
			}
		}
	}
}

// TestTiedSlicesAreRowsOfTheEmbedding: a tied head trains the same embedding in
// slices on several stages as whole on one, and every slice ends with its rows.
func TestTiedSlicesAreRowsOfTheEmbedding(t *testing.T) {
	train := func(parts, stages int) (losses, embedding []float64) {
		c := tiny
		c.Tied, c.HeadShards = true, parts
		borrowed := make([][]float64, c.Layers())
		err := local.Run(stages, func(tr comm.Transport) error {
			r, s, err := runner(tr, c, schedule.Kind1F1B, device.NewWall(), ref.New(tensor.F64))
			if err != nil {
				return err
			}
			agreed, err := steps(r, s, 0)
			if err != nil {
				return err
			}
			if tr.Rank() == 0 {
				for _, a := range agreed {
					losses = append(losses, a.Loss)
				}
			}
			for _, l := range s.Layers {
				if p := l.Tied(); p != nil {
					borrowed[l.ID] = append([]float64(nil), tensor.Of[float64](p.W)...)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%d slices: %v", parts, err)
		}
		embedding = borrowed[0]
		for k := range parts {
			lo, hi := c.Slice(k)
			if !slices.Equal(borrowed[c.Head()+k], embedding[lo*c.Hidden:hi*c.Hidden]) {
				t.Errorf("%d slices: slice %d does not have rows %d to %d of the embedding", parts, k, lo, hi)
			}
		}
		return losses, embedding
	}
	losses, embedding := train(1, 1)
	for _, parts := range []int{2, 4, 5} {
		gotLosses, got := train(parts, 4)
		for i, loss := range losses {
			if math.Abs(gotLosses[i]-loss) > 1e-10 {
				t.Errorf("%d slices, step %d: loss %v, want %v", parts, i, gotLosses[i], loss)
			}
		}
		for i, w := range embedding {
			if math.Abs(got[i]-w) > 1e-10 {
				t.Fatalf("%d slices: embedding[%d] = %v, want %v", parts, i, got[i], w)
			}
		}
	}
}

// perBlock makes every block cost one second in each direction and everything
// else nothing: each of the three has one product with the QKV matrix.
func perBlock(c null.Call) float64 {
	switch c.Name {
	case "MatmulForward", "MatmulBackwardInput", "MatmulBackwardWeight":
		if c.O == 3*tiny.Hidden {
			return 1
		}
	}
	return 0
}

// TestBubbleOfEqualStages: with equal stages and free messages the bubble
// ratio of GPipe and 1F1B is (P-1)/(M+P-1) (law 4).
func TestBubbleOfEqualStages(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B} {
		for _, stages := range []int{1, 2, 4, 8} {
			spans := make([][]trace.Span, stages)
			err := local.Run(stages, func(tr comm.Transport) error {
				clock := device.NewVirtual()
				clock.Pause() // what the executor itself takes does not count: only known costs
				c := tiny
				c.Tied = false
				r, s, err := runner(tr, c, kind, clock, null.New(clock, perBlock))
				if err != nil {
					return err
				}
				cuts := partition.Partition{0} // two more layers at the ends, which cost nothing
				for stage := 1; stage < stages; stage++ {
					cuts = append(cuts, 1+stage*tiny.Blocks/stages)
				}
				cuts = append(cuts, tiny.Layers())
				s.Free()
				if s, err = model.NewStage(c, cuts[tr.Rank()], cuts[tr.Rank()+1], r.Exec.Device, tensor.F32); err != nil {
					return err
				}
				plan, err := schedule.New(kind, stages, 1, microbatches)
				if err != nil {
					return err
				}
				if err := r.Plan(cuts, s, plan); err != nil {
					return err
				}
				done, err := r.Step(s)
				spans[tr.Rank()] = done.Spans
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			p, m := float64(stages), float64(microbatches)
			got := trace.Step{Stages: spans}.Summary().BubbleRatio()
			if want := (p - 1) / (m + p - 1); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s, %d stages: bubble ratio %v, want %v", kind, stages, got, want)
			}
		}
	}
}
