package pipeline_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/attention"
	"dynmo/src/kind/mod"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// thinning has some of the blocks pass on only some of the tokens.
type thinning struct {
	model.Modest
	selecting []int // blocks; -1 is the embedding
	choose    model.Choose
}

func (*thinning) Name() string       { return "thinning" }
func (*thinning) Phase() model.Phase { return model.CutLayers }

func (f *thinning) Extend(_ model.Config, chain []model.Description) []model.Description {
	for i, d := range chain {
		if d.Kind != model.Head && d.Block != chain[i+1].Block && slices.Contains(f.selecting, d.Block) {
			chain[i] = d.Selecting(f.choose)
		}
	}
	return chain
}

// tally counts by what was chosen.
var tally = struct {
	sync.Mutex
	counts map[string]int
}{counts: map[string]int{}}

// extensions are what tests add to a model, by name.
var extensions = func() map[string]model.Extension {
	var calls atomic.Int32
	return map[string]model.Extension{
		"thinning": &thinning{selecting: []int{1, 2, 5}, choose: thin},
		"keeping": &thinning{selecting: []int{1, 2, 5}, choose: func(_ *model.Exec, b *model.Batch, _ tensor.Mem, rows []int32) (int, error) {
			for i := range b.Tokens {
				rows[i] = int32(i)
			}
			return b.Tokens, nil
		}},
		"thinning at once": &thinning{selecting: []int{-1, 4}, choose: thin},
		"routing":          mod.Depths{Capacity: 0.4, Predictor: true, Threshold: 0.5, Auxiliary: 0.1},
		"alternating": &thinning{selecting: []int{1, 2, 5}, choose: func(_ *model.Exec, b *model.Batch, _ tensor.Mem, rows []int32) (int, error) {
			n, left := 0, calls.Add(1)%3
			for i := range int32(b.Tokens) {
				if i%4 != left {
					rows[n] = i
					n++
				}
			}
			return n, nil
		}},
		"descending": &thinning{selecting: []int{2}, choose: func(_ *model.Exec, _ *model.Batch, _ tensor.Mem, rows []int32) (int, error) {
			rows[0], rows[1] = 3, 2
			return 2, nil
		}},
	}
}()

// thin chooses by the activations. The lowest bits of the first token's first value decide: all
// tokens go on, none does, a sequence drops out, or the tokens drop out whose second value is below
// zero.
func thin(x *model.Exec, b *model.Batch, inp tensor.Mem, rows []int32) (int, error) {
	if err := x.Stream.Sync(); err != nil {
		return 0, err
	}
	values := tensor.Of[float32](inp)
	width := len(values) / b.Tokens
	offsets := tensor.Of[int32](b.Offsets)
	mode, n := math.Float32bits(values[0])%8, 0
	for i := range b.Tokens {
		stays := values[i*width+1] >= 0
		switch mode {
		case 0:
			stays = false
		case 1, 2:
			stays = true
		case 3, 4:
			stays = i >= int(offsets[1])
		}
		if stays {
			rows[n] = int32(i)
			n++
		}
	}
	tally.Lock()
	defer tally.Unlock()
	tally.counts[fmt.Sprintf("%d of %d", n, b.Tokens)]++
	if mode == 3 || mode == 4 {
		tally.counts["sequence"]++
	}
	return n, nil
}

// thinned returns a configuration of the chain that selects tokens.
func thinned(name string, tied, half bool, slices int) model.Config {
	c := tiny
	c.Tied, c.HalfGrain, c.HeadShards = tied, half, slices
	if name != "" {
		c = c.With(extensions[name])
	}
	return c
}

// lateWeights is a schedule of one stage whose second chunk does the weights of a
// microbatch once the first one has begun the next.
func lateWeights() schedule.Schedule {
	const f, i, w = schedule.F, schedule.I, schedule.W
	var all []schedule.Instr
	for m := range microbatches + 1 {
		for _, in := range []schedule.Instr{{Op: f, Microbatch: m}, {Op: w, Microbatch: m - 1, Chunk: 1}, {Op: f, Microbatch: m, Chunk: 1},
			{Op: i, Microbatch: m, Chunk: 1}, {Op: i, Microbatch: m}, {Op: w, Microbatch: m}} {
			if 0 <= in.Microbatch && in.Microbatch < microbatches {
				all = append(all, in)
			}
		}
	}
	return schedule.Schedule{Kind: "late weights", Map: partition.Map{Stages: 1, Chunks: 2}, Microbatches: microbatches, Lists: [][]schedule.Instr{all}}
}

// TestSelectingLayers: layers pass on some tokens, others in every microbatch. Losses and updated
// weights are the same bits on one stage and on several, in every schedule, with and without
// replicas (law 3). Under -short each schedule has one number of stages.
func TestSelectingLayers(t *testing.T) {
	plans := []schedule.Schedule{crossing()}
	for i, v := range []struct {
		kind   schedule.Kind
		chunks int
	}{
		{schedule.KindGPipe, 1}, {schedule.Kind1F1B, 1}, {schedule.KindInterleaved, 2}, {schedule.KindZBH1, 1},
		{schedule.KindZBH2, 1}, {schedule.KindZBV, 2}, {schedule.KindZBInterleaved, 2},
	} {
		for stages := 1; stages <= 4; stages++ {
			if testing.Short() && stages != 2+i%3 {
				continue
			}
			plans = append(plans, newSchedule(t, v.kind, stages, v.chunks))
		}
	}
	plans = append(plans, lateWeights())
	clear(tally.counts)
	for _, c := range []model.Config{thinned("thinning", true, false, 1), thinned("thinning", false, true, 3)} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprintf("tied=%v/D=%d", c.Tied, replicas), func(t *testing.T) {
				want := trainReplicas(t, c, newSchedule(t, schedule.KindGPipe, 1, 1), replicas)
				for _, plan := range plans {
					trainReplicas(t, c, plan, replicas).agree(t, want, plan)
				}
			})
		}
	}
	names := slices.Sorted(maps.Keys(tally.counts))
	for _, want := range []string{"sequence", "16 of 16", "0 of 16"} {
		if !slices.Contains(names, want) {
			t.Errorf("chosen were %v, want also %q", names, want)
		}
	}
	if len(names) < 12 {
		t.Errorf("chosen were %v: want more counts", names)
	}
}

// TestSelectingSparse is the same with attention in buckets: the tokens that are left share fewer
// and fewer buckets (law 3).
func TestSelectingSparse(t *testing.T) {
	c := thinned("thinning", true, true, 1)
	c = c.With(attention.Buckets{Count: 4})
	want := train(t, c, newSchedule(t, schedule.KindGPipe, 1, 1))
	for _, plan := range []schedule.Schedule{newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindZBV, 3, 2)} {
		train(t, c, plan).agree(t, want, plan)
	}
}

// TestRoutedLayersOfSomeTokens: some tokens of a microbatch, all or none enter a block that routes
// tokens, and the block passes on some of them. Losses and updated weights are the same bits
// wherever layers lie.
func TestRoutedLayersOfSomeTokens(t *testing.T) {
	for name, d := range map[string]mod.Depths{
		"topk": {Capacity: 0.4, Auxiliary: 0.1}, "predictor": {Capacity: 0.4, Predictor: true, Threshold: 0.5, Auxiliary: 0.1},
	} {
		c := thinned("thinning", true, name == "topk", 2)
		c = c.With(d)
		want := train(t, c, newSchedule(t, schedule.KindGPipe, 1, 1))
		for _, plan := range []schedule.Schedule{
			newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindZBV, 3, 2), newSchedule(t, schedule.KindZBH2, 2, 1), lateWeights(),
		} {
			train(t, c, plan).agree(t, want, plan)
		}
	}
}

// TestSelectingAll: layers that select tokens, and select all, change nothing.
func TestSelectingAll(t *testing.T) {
	want := train(t, tiny, newSchedule(t, schedule.KindGPipe, 1, 1))
	for _, plan := range []schedule.Schedule{newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindZBV, 3, 2)} {
		train(t, thinned("keeping", true, false, 0), plan).agree(t, want, plan)
	}
}

// TestSelectingGraphs: graphs of other passes change nothing, though the number of
// tokens does.
func TestSelectingGraphs(t *testing.T) {
	c, plan := thinned("thinning", true, false, 3), newSchedule(t, schedule.Kind1F1B, 3, 1)
	want := train(t, c, plan).losses
	err := local.Run(3, func(tr comm.Transport) error {
		r, stream, err := capturing(tr, c, plan)
		if err != nil {
			return err
		}
		got, err := steps(r, 0.1)
		if tr.Rank() == 0 && err == nil && !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if stream.launched == 0 {
			t.Error("no graphs")
		}
		return err
	})
	expect.OK(t, err)
}

// TestBoundaryOfSeveralPieces: a boundary whose messages travel in pieces works as
// long as all tokens are there; else stage and instruction are named.
func TestBoundaryOfSeveralPieces(t *testing.T) {
	plan := newSchedule(t, schedule.Kind1F1B, 2, 1)
	for family, want := range map[string]string{
		"keeping": "", "thinning": "F0: tokens have left before a boundary that is too long", "descending": "layer 3 (block.2): model: the tokens of a batch do not ascend",
	} {
		c := thinned(family, true, false, 1)
		err := local.Run(2, func(tr comm.Transport) error {
			clock := device.NewWall()
			r, err := runnerOf(tr, c, plan, clock, ref.New(tensor.F32), comm.Options{Clock: clock, Piece: 512})
			if err != nil {
				return err
			}
			for range 3 {
				if _, err = r.Step(r.feed); err != nil {
					return err
				}
			}
			return nil
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "pipeline: stage 0: ")) {
			t.Errorf("%s: %v, want %q", family, err, want)
		}
	}
}

// cut is a transport whose messages of the schedule with some tags lose their end.
type cut struct {
	comm.Transport
	first int // tag
	bytes int64
}

func (c cut) Isend(to, tag int, m tensor.Mem, stamp float64) (comm.Handle, error) {
	if c.first <= tag && tag < c.first+comm.TagMicrobatches && m.Bytes > c.bytes {
		m = m.Span(0, m.Bytes-c.bytes)
	}
	return c.Transport.Isend(to, tag, m, stamp)
}

// TestWrongCounts: a message that has another length than it can have names stage
// and instruction.
func TestWrongCounts(t *testing.T) {
	plan, row := newSchedule(t, schedule.Kind1F1B, 2, 1), int64(tiny.Hidden*4)
	for name, v := range map[string]struct {
		cut
		want string
	}{
		"activations": {cut{first: comm.TagForward, bytes: 1}, "pipeline: stage 1: RF0: activations of 1023 bytes are no whole number of tokens"},
		"gradients":   {cut{first: comm.TagBackward, bytes: row}, "pipeline: stage 0: RB0: a gradient of 960 bytes, want 1024"},
	} {
		err := local.Run(2, func(tr comm.Transport) error {
			r, err := runner(cut{tr, v.first, v.bytes}, thinned("keeping", true, false, 1), plan, device.NewWall(), ref.New(tensor.F32))
			if err == nil {
				_, err = r.Step(r.feed)
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: %v, want %q", name, err, v.want)
		}
	}
}
