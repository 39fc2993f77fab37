package piece

import (
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestEven(t *testing.T) {
	for _, c := range []struct {
		count, replicas int
		want            string
	}{{4, 2, "0*2 1*2"}, {5, 2, "0*3 1*2"}, {2, 4, "0 2"}, {3, 1, "0*3"}} {
		m := Even(c.count, c.replicas)
		if m.String() != c.want {
			t.Errorf("%d pieces on %d: %s, want %s", c.count, c.replicas, m, c.want)
		}
		expect.OK(t, m.Check(c.count, c.replicas, (c.count+c.replicas-1)/c.replicas))
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		text, want string
		places     int
	}{
		{"0+1*2 1", "", 3},
		{"0+1*2 1", "replica 1: more than 2", 2},
		{"0", "1 pieces", 2},
		{"0 1 2", "piece 2: replica 2", 2},
		{"0+0 1 1", "its owner 0 has a copy too", 2},
		{"0 1+0+0 1", "want them ascending", 2},
	} {
		a, err := Parse(c.text)
		expect.OK(t, err)
		err = a.Block(0).Check(3, 2, c.places)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
