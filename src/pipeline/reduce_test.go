package pipeline_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/null"
	"dynmo/src/kernel/ref"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// gradients returns what replicas sum of each layer, as numbers.
func gradients(r *member) map[int][]float32 {
	list := map[int][]float32{}
	for _, l := range r.s.Layers {
		for _, slab := range l.Reduced() {
			list[l.ID] = append(list[l.ID], tensor.Of[float32](slab)...)
		}
	}
	return list
}

// TestSumsOverReplicas: gradients are the sums that schedule.Sums defines of the single replicas'
// gradients. They have the same bits on every replica, with any schedule and any size of buckets,
// in a second step too.
func TestSumsOverReplicas(t *testing.T) {
	c := tiny
	c.Tied = false // the sums of tied matrices would follow
	const each = 1 // byte: a layer is a bucket
	for _, v := range []struct {
		kind                     schedule.Kind
		stages, chunks, replicas int
		bucket                   int64
		sums                     schedule.Sums
	}{
		{schedule.KindGPipe, 1, 1, 2, 0, schedule.Sums{}},
		{schedule.Kind1F1B, 2, 1, 3, each, schedule.Sums{Group: 1}},
		{schedule.Kind1F1B, 1, 1, 4, 40 << 10, schedule.Sums{}}, // several layers, but not all
		{schedule.KindZBV, 2, 2, 2, each, schedule.Sums{}},
		{schedule.KindZBH1, 2, 1, 3, 0, schedule.Sums{Group: 3}},
		{schedule.KindInterleaved, 2, 2, 2, 40 << 10, schedule.Sums{}},
		{schedule.KindGPipe, 1, 1, 2, 0, schedule.Sums{Rounded: true}},
		{schedule.KindZBV, 2, 2, 3, each, schedule.Sums{Rounded: true}},
		{schedule.Kind1F1B, 1, 1, 8, 0, schedule.Sums{Group: 4}},
		{schedule.Kind1F1B, 1, 1, 4, each, schedule.Sums{Group: 2, Rounded: true}},
		{schedule.KindZBH1, 2, 1, 5, each, schedule.Sums{Group: 2}}, // the last group is one replica
		{schedule.KindInterleaved, 2, 2, 5, 40 << 10, schedule.Sums{Group: 3, Rounded: true}},
	} {
		t.Run(fmt.Sprintf("%s/P=%d/D=%d/bucket=%d/%+v", v.kind, v.stages, v.replicas, v.bucket, v.sums), func(t *testing.T) {
			plan := newSchedule(t, v.kind, v.stages, v.chunks)
			var mu sync.Mutex
			sums, own := map[[2]int][]float32{}, map[[2]int][]float32{} // by replica and layer
			run := func(ranks int, into map[[2]int][]float32, replica int) {
				expect.OK(t, local.Run(ranks, func(tr comm.Transport) error {
					clock := device.NewWall()
					r, err := runnerOf(tr, c, plan, clock, ref.New(tensor.F32), comm.Options{Clock: clock})
					if err != nil {
						return err
					}
					if err := r.replan(equal(c, plan.Map), plan, pipeline.Options{Bucket: v.bucket, Sums: v.sums}); err != nil {
						return err
					}
					r.x.Scale = 1
					d := r.groups.Replicas.Rank() + replica
					data := feed(r.x, c.Vocab)
					for range 2 {
						if _, err := r.Step(func(m int) ([]int32, []int32) { return data(d*microbatches + m) }); err != nil {
							return err
						}
					}
					mu.Lock()
					defer mu.Unlock()
					for id, g := range gradients(r) {
						into[[2]int{d, id}] = g
					}
					return nil
				}))
			}
			run(plan.Map.Stages*v.replicas, sums, 0)
			for d := range v.replicas {
				run(plan.Map.Stages, own, d)
			}
			for id := range c.Layers() {
				var replicas [][]float32
				for d := range v.replicas {
					replicas = append(replicas, own[[2]int{d, id}])
				}
				want := defined(v.sums, replicas)
				for d := range v.replicas {
					if got := sums[[2]int{d, id}]; len(want) == 0 || !slices.Equal(got, want) {
						t.Fatalf("layer %d: replica %d has other sums than those defined", id, d)
					}
				}
			}
		})
	}
}

// defined returns the sums of the replicas' gradients, by definition.
func defined(s schedule.Sums, replicas [][]float32) []float32 {
	sum := make([]float32, len(replicas[0]))
	each := max(1, s.Group)
	for i := range sum {
		for first := 0; first < len(replicas); first += each {
			group := float32(0)
			for d := first; d < min(first+each, len(replicas)); d++ {
				g := replicas[d][i]
				if s.Rounded {
					g = tensor.FromBF16(tensor.ToBF16(g))
				}
				if group += g; d == first {
					group = g // 0 + -0 would be 0
				}
			}
			if sum[i] += group; first == 0 {
				sum[i] = group
			}
		}
	}
	return sum
}

// TestTrafficOfSums: a replica sends the bytes that Sums.Sent says, and padding of shares to lines.
// It takes no more memory than Sums.Bytes.
func TestTrafficOfSums(t *testing.T) {
	const replicas = 8
	plan := newSchedule(t, schedule.Kind1F1B, 1, 1)
	for _, sums := range []schedule.Sums{{}, {Rounded: true}, {Group: 4}, {Group: 4, Rounded: true}, {Group: 3}, {Group: 3, Rounded: true}} {
		t.Run(fmt.Sprintf("%+v", sums), func(t *testing.T) {
			expect.OK(t, local.Run(replicas, func(tr comm.Transport) error {
				clock := device.NewWall()
				r, err := runner(tr, tiny, plan, clock, null.New(clock, nil))
				if err != nil {
					return err
				}
				if err := r.replan(equal(tiny, plan.Map), plan, pipeline.Options{Sums: sums}); err != nil {
					return err
				}
				var summed []int64
				all, parts := int64(0), 0
				for _, l := range r.s.Layers {
					own := int64(0)
					for _, slab := range l.Reduced() {
						own, parts = own+slab.Bytes, parts+1
					}
					summed, all = append(summed, own), all+own
				}
				slices.Reverse(summed)
				if used, most := r.x.Device.Used()-accounted(r.x, r.s, plan, 0), sums.Bytes(summed, replicas); used > most || used < most/2 {
					t.Errorf("replica %d: sums take %d bytes of memory, at most %d are accounted for", tr.Rank(), used, most)
				}
				before := r.groups.Replicas.Sent()
				if _, err := r.Step(r.feed); err != nil {
					return err
				}
				sent, want := r.groups.Replicas.Sent()-before, 0.
				for round := range sums.Rounds(replicas) + 1 {
					want += sums.Sent(round, tr.Rank(), replicas) * float64(all)
				}
				if padding := float64(replicas * (parts + 2) * 64); math.Abs(float64(sent)-want) > padding {
					t.Errorf("replica %d sends %d bytes in a step, want %.0f ± %.0f", tr.Rank(), sent, want, padding)
				}
				t.Logf("replica %d sends %d bytes in a step: %.4f of the gradients", tr.Rank(), sent, float64(sent)/float64(all))
				return nil
			}))
		})
	}
}

// TestSumsBeginDuringTheBackward: one stage of two replicas, where each pass of a block takes a
// second and every message half of one. Sums begin while the last backward runs. That backward ends
// with the embedding's gradients, and only their two rounds are exposed.
func TestSumsBeginDuringTheBackward(t *testing.T) {
	plan := newSchedule(t, schedule.Kind1F1B, 1, 1)
	expect.OK(t, local.Run(2, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause() // only known costs count
		r, err := runnerOf(tr, tiny, plan, clock, null.New(clock, perBlock), comm.Options{Clock: clock, Network: comm.Network{Latency: 0.5}})
		if err != nil {
			return err
		}
		if err := r.replan(equal(tiny, plan.Map), plan, pipeline.Options{Bucket: 1}); err != nil {
			return err
		}
		done, err := r.Step(r.feed)
		if err != nil {
			return err
		}
		hidden, first, last, end := 0, 0., 0., 0.
		for i, span := range done.Spans {
			switch {
			case span.Op == trace.W:
				last = max(last, span.End)
			case span.Op == trace.Reduce && i < len(done.Spans)-1:
				hidden++
				if first == 0 {
					first = span.Start
				}
			}
			end = max(end, span.End)
		}
		if hidden != tiny.Blocks || first > last-13 {
			t.Errorf("%d of %d sums begin during the backward, the first at %v; it ends at %v", hidden, tiny.Layers(), first, last)
		}
		if open := end - last; math.Abs(open-1) > 1e-3 { // the clock's own overhead
			t.Errorf("%v s of sums are in the open, want 1", open)
		}
		return nil
	}))
}
