package prune

import (
	"maps"
	"math"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/tensor"
)

// unit is some elements of a parameter, and the score that keeps them whole.
type unit struct {
	name  string
	at    []int
	score float64
}

// blockUnits and pairUnits are the units of a parameter of c columns, dense so far.
func blockUnits(name string, w map[int]float32, c int) (list []unit) {
	across := c / 32
	for b := range len(w) / 1024 {
		u := unit{name: name}
		for i := range 1024 {
			at := (b/across*32+i/32)*c + b%across*32 + i%32
			u.at, u.score = append(u.at, at), u.score+float64(w[at])*float64(w[at])
		}
		list = append(list, u)
	}
	return list
}

func pairUnits(name string, w map[int]float32, _ int) (list []unit) {
	for g := range len(w) / 4 {
		u := unit{name: name, at: []int{4 * g, 4*g + 1, 4*g + 2, 4*g + 3}}
		slices.SortStableFunc(u.at, func(a, b int) int { return -compareMagnitudes(w[a], w[b]) })
		u.score = max(float64(abs(w[u.at[2]])+abs(w[u.at[3]])), 0x1p-126)
		list = append(list, u)
	}
	return list
}

func abs(x float32) float32 { return max(x, -x) }

func compareMagnitudes(a, b float32) int {
	switch {
	case abs(a) < abs(b):
		return -1
	case abs(a) > abs(b):
		return 1
	}
	return 0
}

// TestStructuresKeepTheLargest: a dense model is pruned by blocks, or to two of four. It keeps the
// units that sorting all units keeps, with either way of selection and wherever layers are. There
// are many ties; they go to the lower (layer, parameter, index). Later prunings only remove, and
// end on the final sparsity.
func TestStructuresKeepTheLargest(t *testing.T) {
	before := shape
	defer func() { shape = before }()
	shape.Hidden, shape.Blocks = 32, 2
	for _, c := range []struct {
		name  string
		by    structure
		units func(string, map[int]float32, int) []unit
		half  int // elements that a unit keeps which is not whole
		final float64
	}{{"block32", blocks{}, blockUnits, 0, 0.9}, {"2:4", pairs{}, pairUnits, 2, 0.5}} {
		p := pruning{Start: 0, Every: 1, Times: 3, Initial: 0.2, Final: c.final, Structure: c.by}
		dense := p
		dense.Structure, dense.Initial, dense.Final, dense.Times = single{}, 0, 0, 1
		whole := prunePipeline(t, partition.Line(1), dense, 1)[0]
		var want pruned
		for _, p.Gather = range []bool{false, true} {
			for _, stages := range []int{1, 3} {
				if p.CSRFrom = 2; c.half == 0 && stages > 1 {
					p.CSRFrom = 0.3 // whole blocks in CSR, which are pruned again
				}
				got := prunePipeline(t, partition.Line(stages), p, 1)
				if want == nil {
					want = keepLargest(t, whole, c.units, c.half, p.Initial)
				}
				for name, kept := range want {
					if !maps.Equal(got[0][name], kept) {
						t.Errorf("%s, gather %v, %d stages: %s keeps %d elements, want %d or others", c.name, p.Gather, stages, name, len(got[0][name]), len(kept))
					}
				}
				for i, later := range got[1:] {
					for name, kept := range later {
						for at, w := range kept {
							if before, ok := got[i][name][at]; !ok || before != w {
								t.Fatalf("%s, pruning %d: %s came back at %d", c.name, i+1, name, at)
							}
						}
					}
				}
			}
		}
	}
}

// keepLargest prunes a dense model to a sparsity by sorting its units.
func keepLargest(t *testing.T, dense pruned, units func(string, map[int]float32, int) []unit, half int, sparsity float64) pruned {
	var all []unit
	for _, m := range prunableOf(t) {
		all = append(all, units(m.name, dense[m.name], m.cols)...)
	}
	elements := 0
	for _, u := range all {
		elements += len(u.at)
	}
	inWhole := float64(len(all[0].at) - half) // that a unit loses
	whole := int(math.Round(((1-sparsity)*float64(elements) - float64(half*len(all))) / inWhole))
	slices.SortStableFunc(all, func(a, b unit) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	out := pruned{}
	for i, u := range all {
		if out[u.name] == nil {
			out[u.name] = make(map[int]float32)
		}
		kept := u.at
		if i >= whole {
			kept = u.at[:half]
		}
		for _, at := range kept {
			out[u.name][at] = dense[u.name][at]
		}
	}
	return out
}

// prunableOf returns the name and the columns of every prunable parameter of the shape, in
// the order of ties.
func prunableOf(t *testing.T) (list []named) {
	s, err := model.NewStage(shape, shape.All(), cpu.New(device.NewWall()), tensor.F32)
	expect.OK(t, err)
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			if p.Prunable() {
				list = append(list, named{l.Name + " " + p.Name, p.Cols})
			}
		}
	}
	return list
}

type named struct {
	name string
	cols int
}
