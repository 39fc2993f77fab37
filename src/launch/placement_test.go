package launch

import (
	"testing"

	"dynmo/src/comm"
)

func TestPlacement(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts []string
		cores [][]int
		want  string
	}{
		{"alone", []string{"a"}, [][]int{{0, 1, 2, 3}}, "0 on a (cores 0-3)"},
		{"blocks", []string{"a", "a", "b", "b"}, [][]int{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, "0-1 on a (cores 0-1), 2-3 on b (cores 0-1)"},
		{"bound", []string{"a", "a", "a"}, [][]int{{0}, {2, 3, 5}, {2, 3, 5}}, "0-2 on a (cores 0; 2-3,5; 2-3,5)"},
		{"cyclic", []string{"a", "b", "a"}, [][]int{{7}, nil, {7}}, "0,2 on a (cores 7), 1 on b (cores unknown)"},
	} {
		all := make([]arrival, len(c.hosts))
		for rank := range all {
			all[rank].Cores = c.cores[rank]
		}
		got := placement(func(rank int) comm.Peer { return comm.Peer{Host: c.hosts[rank]} }, all, nil)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
