package roofline

import (
	"testing"

	"dynmo/src/expect"
)

// TestNetwork: every known GPU has a network of nodes, and messages take time on it.
func TestNetwork(t *testing.T) {
	for _, name := range Names() {
		n, err := Network(name)
		expect.OK(t, err)
		if n.PerNode < 1 || n.Between.Bandwidth <= 0 || n.Between.Bandwidth >= n.Node.Bandwidth || n.Between.Latency <= 0 {
			t.Errorf("%s: %+v", name, n)
		}
	}
	if _, err := Network("b200"); err == nil {
		t.Error("a network of an unknown GPU")
	}
}
