package place

import (
	"math/rand/v2"
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestEven(t *testing.T) {
	for _, c := range []struct {
		experts, replicas int
		want              string
	}{{4, 2, "0*2 1*2"}, {5, 2, "0*3 1*2"}, {2, 4, "0 2"}, {3, 1, "0*3"}} {
		m := Even(c.experts, c.replicas)
		if m.String() != c.want {
			t.Errorf("%d experts on %d: %s, want %s", c.experts, c.replicas, m, c.want)
		}
		expect.OK(t, m.Check(c.experts, c.replicas, Places(c.experts, c.replicas, 0)))
	}
}

// TestTextOfMaps: what String writes Parse reads.
func TestTextOfMaps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4)) // fixed seed: a failure must repeat
	for range 100 {
		m := randomMap(rnd, rnd.IntN(20), 1+rnd.IntN(9))
		got, err := Parse(m.String())
		expect.OK(t, err)
		if !got.Equal(m) {
			t.Fatalf("%v, want %v", got, m)
		}
	}
	for _, text := range []string{"a", "0*1", "0*-3", "1+", "-1", "0*99999999"} {
		if m, err := Parse(text); err == nil {
			t.Errorf("%q is %v", text, m)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		text, want string
		places     int
	}{
		{"0+1*2 1", "", 3},
		{"0+1*2 1", "replica 1: more than 2", 2},
		{"0", "1 experts", 2},
		{"0 1 2", "expert 2: replica 2", 2},
		{"0+0 1 1", "its owner 0 has a copy too", 2},
		{"0 1+0+0 1", "want them ascending", 2},
	} {
		m, err := Parse(c.text)
		expect.OK(t, err)
		err = m.Check(3, 2, c.places)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
