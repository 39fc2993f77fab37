package config

import (
	"reflect"
	"testing"
)

// FuzzLoad feeds arbitrary files and sets: Load must answer with an error or
// with settings that are valid and survive being written and read again.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(Default().TOML()), "model.hidden=64")
	f.Add([]byte("[model]\nhidden = 12\nheads = 3\n"), "run.name=\"\\u0000\"")
	f.Add([]byte("balance.every = 3\n[data]\nextensions = []\n"), "data.extensions=[\"a\"]")
	f.Add([]byte("[[run]]\n[run.seed.x]\n"), "optimizer.lr=nan")
	f.Add([]byte("optimizer = {lr = -0.0, clip = 1e308}\n"), "balance.every=+1")
	f.Fuzz(func(t *testing.T, source []byte, set string) {
		c, _, err := load("fuzz.toml", source, []string{set})
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("loaded, but not valid: %v", err)
		}
		again, _, err := load("resolved.toml", []byte(c.TOML()), nil)
		if err != nil {
			t.Fatalf("the resolved file does not load: %v\n%s", err, c.TOML())
		}
		if !reflect.DeepEqual(again, c) {
			t.Fatalf("written and read again:\n%+v\n%+v", again, c)
		}
	})
}
