package profile

import (
	"math"
	"testing"

	"dynmo/src/partition"
	"dynmo/src/random"
)

// measure returns the seconds that layers show on ranks of some factors, with noise
// of a few per cent.
func measure(seconds, slow []float64, owners partition.Owners, seed uint64) (took []float64) {
	draw := random.Keyed(seed)
	for l, s := range seconds {
		took = append(took, s*slow[owners[l]]*(1+0.03*(2*draw.Float64()-1)))
	}
	return took
}

func TestSpeedsFindTheSlowRank(t *testing.T) {
	seconds := make([]float64, 16)
	for l := range seconds {
		seconds[l] = 1 + float64(l%5)
	}
	slow := []float64{1, 1, 2.5, 1}
	var s rankSpeeds
	for i, cuts := range []partition.Partition{{0, 4, 8, 12, 16}, {0, 5, 9, 11, 16}, {0, 3, 7, 13, 16}, {0, 4, 8, 11, 16}} {
		owners := partition.Line(4).Owners(cuts)
		s.Observe(measure(seconds, slow, owners, uint64(i)), owners)
	}
	got := s.Slow(4)
	for i, want := range slow {
		if math.Abs(got[i]/want-1) > 0.1 {
			t.Errorf("stage %d: factor %v, want %v", i, got[i], want)
		}
	}
}

func TestSpeedsStayOneWhereRanksAreAlike(t *testing.T) {
	seconds := []float64{1, 2, 3, 4, 5, 6}
	var s rankSpeeds
	for i, cuts := range []partition.Partition{{0, 2, 6}, {0, 4, 6}, {0, 1, 6}, {0, 5, 6}} {
		owners := partition.Line(2).Owners(cuts)
		s.Observe(measure(seconds, []float64{1, 1}, owners, uint64(i)), owners)
		if got := s.Slow(2); got != nil {
			t.Errorf("cuts %v: factors %v from noise alone", cuts, got)
		}
	}
}

// A machine that is slower as a whole for a while says nothing of ranks.
func TestSpeedsIgnoreDrift(t *testing.T) {
	var s rankSpeeds
	s.Observe(measure([]float64{1, 1, 1, 1, 1, 1}, []float64{1, 1}, two(0, 2, 6), 1), two(0, 2, 6))
	s.Observe(measure([]float64{2, 2, 2, 2, 2, 2}, []float64{1, 1}, two(0, 4, 6), 2), two(0, 4, 6))
	if got := s.Slow(2); got != nil {
		t.Errorf("factors %v", got)
	}
}

// A layer that the model's change made cheaper says nothing of ranks.
func TestSpeedsForgetChangedLayers(t *testing.T) {
	var s rankSpeeds
	even := []float64{1, 1}
	s.Observe(measure([]float64{1, 1, 1, 1}, even, two(0, 1, 4), 1), two(0, 1, 4))
	s.Changed()
	s.Observe(measure([]float64{1, .1, .1, 1}, even, two(0, 3, 4), 2), two(0, 3, 4))
	if got := s.Slow(2); got != nil {
		t.Errorf("factors %v", got)
	}
}

// two returns the owners of a chain that two stages share.
func two(cuts ...int) partition.Owners { return partition.Line(2).Owners(cuts) }
