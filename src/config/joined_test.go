package config

import "testing"

// TestJoinedKinds: the settings of every kind that is named count.
func TestJoinedKinds(t *testing.T) {
	for kind, silent := range map[string]int{"none": 3, "prune": 2, "freeze": 1, "prune+freeze": 0, "freeze+prune": 0} {
		c := Default()
		c.Dynamic.Kind = kind
		c.Assign("prune.start", 1, "freeze.when", "step", "freeze.step", 2)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if got := c.Ignored(); len(got) != silent {
			t.Errorf("%s: %q have no effect, want %d", kind, got, silent)
		}
		if has := c.Dynamic.Has("freeze"); has != (kind != "none" && kind != "prune") {
			t.Errorf("%s has freeze: %v", kind, has)
		}
	}
}

// TestStructure: what a kind decides as time goes by is left out.
func TestStructure(t *testing.T) {
	for kinds, want := range map[string]string{"none": "none", "prune": "none", "exit": "exit", "prune+exit": "exit", "mod+freeze+exit": "mod+exit", "attention": "attention"} {
		if got := (Dynamic{Kind: kinds}).Structure(); got != want {
			t.Errorf("%s: %s, want %s", kinds, got, want)
		}
	}
}
