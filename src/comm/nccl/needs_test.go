package nccl

import "testing"

// TestNeeds holds the formula to numbers worked out by hand, with 8 GPUs on a host: the mesh
// of 24 stages and 30 replicas, of 8 and 90, a pipeline and a row within a host.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		stages, replicas, onHost int
		want                     Needs
	}{
		{24, 30, 8, Needs{3, 4, 12, 12, 4 * (10*9633792 + 3*4194304)}},
		{8, 90, 8, Needs{3, 4, 12, 12, 4 * (10*9633792 + 3*4194304)}},
		{24, 30, 1, Needs{3, 4, 12, 12, 4 * 3 * 4194304}},
		{4, 1, 4, Needs{3, 4, 12, 12, 4 * 6 * 9633792}},
		{2, 1, 2, Needs{2, 3, 8, 8, 4 * 2 * 9633792}},
		{1, 8, 8, Needs{1, 2, 4, 4, 4 * 7 * 9633792}},
		{1, 1, 1, Needs{}},
	} {
		if got := NeedsOf(c.stages, c.replicas, c.onHost, 4); got != c.want {
			t.Errorf("%d stages x %d replicas, %d on a host: %+v, want %+v", c.stages, c.replicas, c.onHost, got, c.want)
		}
	}
}
