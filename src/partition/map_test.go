package partition

import (
	"slices"
	"testing"
)

func TestMap(t *testing.T) {
	for _, c := range []struct {
		name   string
		m      Map
		stages []int // by virtual stage
	}{
		{"line", Line(3), []int{0, 1, 2}},
		{"loop", Map{Stages: 3, Chunks: 2}, []int{0, 1, 2, 0, 1, 2}},
		{"V", Map{Stages: 3, Chunks: 2, Vee: true}, []int{0, 1, 2, 2, 1, 0}},
		{"W", Map{Stages: 2, Chunks: 4, Vee: true}, []int{0, 1, 1, 0, 0, 1, 1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			for v := range c.m.Virtual() {
				s, k := c.m.Stage(v), c.m.Chunk(v)
				got = append(got, s)
				if c.m.Place(s, k) != v {
					t.Errorf("chunk %d of stage %d is virtual stage %d, want %d", k, s, c.m.Place(s, k), v)
				}
			}
			if !slices.Equal(got, c.stages) {
				t.Errorf("stages %v, want %v", got, c.stages)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	vee := Map{Stages: 2, Chunks: 2, Vee: true}
	from, to := vee.Owners(Partition{0, 2, 3, 4, 6}), vee.Owners(Partition{0, 1, 4, 5, 6})
	if want := (Owners{0, 0, 1, 1, 0, 0}); !slices.Equal(from, want) {
		t.Errorf("owners %v, want %v", from, want)
	}
	// Layer 3 changes its chunk but not its stage.
	if got := from.Moved(to); !slices.Equal(got, []int{1, 4}) {
		t.Errorf("moved %v, want [1 4]", got)
	}
	if got := to.Layers(1); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("stage 1 holds %v", got)
	}
}
