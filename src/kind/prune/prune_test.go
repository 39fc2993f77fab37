package prune

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// TestSparsityOfThePaper: with S_i 0, S_f 0.9, t0 3000, n 4, Δt 1000 the cubic
// schedule gives 0, 0.5203, 0.7875, 0.8859, 0.9. (The paper, section 4.1,
// prints 52, 79 and 90 %.)
func TestSparsityOfThePaper(t *testing.T) {
	p := pruning{Start: 3000, Every: 1000, Times: 4, Final: 0.9}
	for i, want := range []float64{0, 0.5203, 0.7875, 0.8859, 0.9} {
		got, due := p.Sparsity(3000 + 1000*i)
		if !due || math.Abs(got-want) > 5e-5 {
			t.Errorf("step %d: %v (due %v), want %v", 3000+1000*i, got, due, want)
		}
	}
	for _, step := range []int{0, 2999, 3001, 3999, 7001, 8000} {
		if _, due := p.Sparsity(step); due {
			t.Errorf("step %d is not a pruning step", step)
		}
	}
}

var shape = model.Config{Blocks: 5, Hidden: 8, Heads: 2, Sequence: 4, Vocab: 16, HalfGrain: true, Seed: 9}

// pruned is what is left of every parameter after pruning, by layer and name:
// which places hold which values, whatever the format.
type pruned map[string]map[int]float32

// prunePipeline prunes a random model, with many ties, through the whole
// schedule, and returns after every step what is kept.
func prunePipeline(t *testing.T, m partition.Map, p pruning, seed uint64) []pruned {
	t.Helper()
	var mu sync.Mutex
	out := make([]pruned, p.Times+1)
	for i := range out {
		out[i] = pruned{}
	}
	owners := m.Owners(partitiontest.Random(random.Keyed(seed, 1), shape.Layers(), m.Virtual()))
	err := local.Run(m.Stages, func(tr comm.Transport) error {
		clock := device.NewWall()
		group, dev := comm.New(tr, comm.Options{Clock: clock}), cpu.New(clock)
		x := &model.Exec{Device: dev, Backend: ref.New(tensor.F32), Stream: dev.NewStream(), B: 1, T: shape.Sequence}
		s, err := model.NewStage(shape, owners.Layers(tr.Rank()), dev, tensor.F32)
		if err != nil {
			return err
		}
		for _, l := range s.Layers {
			draw := random.Keyed(seed, uint64(l.ID))
			for _, p := range l.Params() {
				w := tensor.Of[float32](p.W)
				for i := range w {
					w[i] = float32(draw.IntN(41)-20) / 64 // 21 magnitudes: ties everywhere, zeros too
				}
			}
		}
		want := math.Inf(1)
		for i := range out {
			change, err := p.Before(p.Start+i*p.Every, dynamic.Target{Stages: group, Exec: x, Stage: s})
			if err != nil {
				return err
			}
			mu.Lock()
			for _, l := range s.Layers {
				for _, p := range l.Params() {
					out[i][l.Name+" "+p.Name] = contents(p)
					spoil(p)
				}
			}
			mu.Unlock()
			counts := countPrunable(s)
			if err := comm.Allreduce(group, counts[:], func(a, b int64) int64 { return a + b }); err != nil {
				return err
			}
			left := float64(counts[1])
			target, _ := p.Sparsity(p.Start + i*p.Every)
			by, elements := p.structure(), counts[0]
			before := min(want, float64(elements))
			want = min(want, float64(by.elements(by.left(elements, elements), by.whole(target, elements)))) // what is pruned stays pruned
			if kind := change.Kind; (kind == "prune") != (want < before) {
				return fmt.Errorf("sparsity %v: %v of %v are left after %v, the change is of kind %q", target, want, counts[0], before, kind)
			}
			if left != want || change.Kind != "" && change.Detail["kept"] != want {
				return fmt.Errorf("sparsity %v: %v of %v are left, event says %v, want %v", target, left, counts[0], change.Detail["kept"], want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%+v: %v", m, err)
	}
	return out
}

// contents returns a parameter's kept places and their values.
func contents(p *model.Param) map[int]float32 {
	kept := make(map[int]float32)
	w, mask := tensor.Of[float32](p.W), model.Mask(tensor.Of[uint64](p.Mask))
	rows, cols := tensor.Of[int32](p.RowPtr), tensor.Of[int32](p.ColIdx)
	for r := range p.Rows {
		if p.Format.Sparse() {
			for k := rows[r]; k < rows[r+1]; k++ {
				kept[r*p.Cols+int(cols[k])] = w[k]
			}
			continue
		}
		for c := range p.Cols {
			if i := r*p.Cols + c; mask == nil || mask.Has(i) {
				kept[i] = w[i]
			}
		}
	}
	return kept
}

// spoil writes the largest magnitude into every place that a mask drops: what
// is dropped stays so, whatever its memory holds.
func spoil(p *model.Param) {
	mask := model.Mask(tensor.Of[uint64](p.Mask))
	if mask == nil {
		return
	}
	for i, w := 0, tensor.Of[float32](p.W); i < len(w); i++ {
		if !mask.Has(i) {
			w[i] = 1
		}
	}
}

// TestSelectionsAgree: gather and radix keep the same set on random models
// with ties, however stages hold the layers, at every sparsity of the schedule.
func TestSelectionsAgree(t *testing.T) {
	for seed := range uint64(3) {
		p := pruning{Start: 3000, Every: 1000, Times: 4, Final: 0.9, CSRFrom: 0.7}
		want := prunePipeline(t, partition.Line(1), p, seed)
		for _, gather := range []bool{false, true} {
			for _, m := range []partition.Map{
				partition.Line(1), partition.Line(2), partition.Line(5),
				{Stages: 2, Chunks: 3}, {Stages: 2, Chunks: 2, Vee: true}, {Stages: 3, Chunks: 3, Vee: true},
			} {
				p.Gather = gather
				got := prunePipeline(t, m, p, seed)
				for i := range want {
					for name, kept := range want[i] {
						if !maps.Equal(got[i][name], kept) {
							t.Errorf("seed %d, gather %v, %+v, pruning %d: %s keeps another set", seed, gather, m, i, name)
						}
					}
				}
			}
		}
	}
}

// TestKeptSetIsTheLargest checks one pruning against sorting everything, and
// that ties go to the lower (layer, parameter, index).
func TestKeptSetIsTheLargest(t *testing.T) {
	lists := [][]uint32{{5, 1, 3}, {}, {3, 9, 3, 0}}
	for k, want := range map[int64]string{
		0: "[[] [] []]", 1: "[[] [] [1]]", 2: "[[0] [] [1]]", 3: "[[0 2] [] [1]]",
		4: "[[0 2] [] [0 1]]", 5: "[[0 2] [] [0 1 2]]", 7: "[[0 1 2] [] [0 1 2 3]]",
	} {
		if got := fmt.Sprint(largest(lists, k)); got != want {
			t.Errorf("k = %d: %v, want %v", k, got, want)
		}
	}
}

// TestKeptSetOnlyShrinks: no pruning brings back a place that an earlier one
// dropped or changes a value that it kept, from dense over masks to CSR.
func TestKeptSetOnlyShrinks(t *testing.T) {
	p := pruning{Start: 3000, Every: 1000, Times: 4, Final: 0.9, CSRFrom: 0.7}
	for _, p.Gather = range []bool{false, true} {
		out := prunePipeline(t, partition.Line(2), p, 1)
		for i, now := range out[1:] {
			for name, kept := range now {
				for at, w := range kept {
					if before, ok := out[i][name][at]; !ok || before != w {
						t.Errorf("gather %v, pruning %d: %s holds %v at %d, before it %v (kept: %v)", p.Gather, i+1, name, w, at, before, ok)
					}
				}
			}
		}
	}
}

// TestALowerTargetChangesNothing: where less sparsity is asked for than there
// is, everything stays as it is.
func TestALowerTargetChangesNothing(t *testing.T) {
	for _, csrFrom := range []float64{0.7, 0.95} { // CSR, masked
		p := pruning{Start: 0, Every: 10, Times: 1, Initial: 0.9, Final: 0.5, CSRFrom: csrFrom}
		for _, p.Gather = range []bool{false, true} {
			out := prunePipeline(t, partition.Line(2), p, 1)
			for name, kept := range out[0] {
				if !maps.Equal(out[1][name], kept) {
					t.Errorf("CSR from %v, gather %v: %s changed", csrFrom, p.Gather, name)
				}
			}
		}
	}
}
