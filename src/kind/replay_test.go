package kind_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
)

// TestReplayRefuses: a wrong file of dynamic.replay is an error that names the line, the field,
// the value and what is wanted. The chain has layers 0 to 3, blocks 1 and 2 have densities.
func TestReplayRefuses(t *testing.T) {
	const prune = `{"step":0,"layer":1,"density":0.5}
{"step":0,"layer":2,"density":0.25}
`
	var buckets []string
	for i := range 2 * 4 { // layers and microbatches
		buckets = append(buckets, fmt.Sprintf(`{"step":0,"layer":%d,"microbatch":%d,"buckets":[%d%s]}`, 1+i/4, i%4, 128-i/7, strings.Repeat(",0", 15)))
	}
	for _, c := range []struct{ kind, text, want string }{
		{"prune", prune, ""},
		{"freeze", `{"step":0,"layer":0,"frozen":1}`, `f:1: the end of the file, want frozen of step 0, layer 1, microbatch 0: a step has a record for each of 4 layers and 1 microbatches`},
		{"prune", ``, `f:0: the end of the file without a record with density, the load of dynamic.kind = "prune"`},
		{"prune", `{"step":0,"layer":3,"density":0.5}`, `f:1: layer: 3, want one of [1 2]: the 2 of 4 layers that have a density`},
		{"prune", `{"step":0,"layer":2,"density":0.5}`, `f:1: layer: 2, want 1: a step has a record for each of 2 layers and 1 microbatches, ascending`},
		{"prune", `{"step":-1,"layer":1,"density":0.5}`, `f:1: step: -1, want an integer of at least 0`},
		{"prune", `{"step":0,"layer":1,"density":1.5}`, `f:1: density: 1.5, want a number from 0 to 1`},
		{"prune", `{"step":0,"layer":1,"density":"x"}`, `f:1: density: "x", want a number from 0 to 1`},
		{"prune", `{"step":0,"layer":1,"density":0.5,"colour":1}`, `f:1: "colour": an unknown field beside density, want step, layer, density`},
		{"prune", `{"layer":1,"density":0.5}`, `f:1: no step, want step, layer, density`},
		{"prune", `{"step":0,"layer":1,"frozen":1}`, `f:1: no load of dynamic.kind = "prune", want one of density`},
		{"prune", `{"step":0`, `f:1: byte 9: unexpected end of JSON input`},
		{"prune", prune + `{"step":0,"layer":1,"density":0.5}`, `f:3: step: 0, want above 0: steps ascend, and step 0 has all its records`},
		{"prune", prune + `{"step":9,"layer":1,"density":0.75}` + "\n" + `{"step":9,"layer":2,"density":0.25}`,
			`f:3: density: 0.75, want at most 0.5, the density of the layer in the step before: pruned weights do not come back`},
		{"freeze", `{"step":0,"layer":0,"frozen":2}`, `f:1: frozen: 2, want an integer from 0 to 1`},
		{"exit", `{"step":0,"layer":2,"microbatch":0,"left":9000}`, `f:1: left: 9000, want an integer from 0 to 128`},
		{"exit", `{"step":0,"layer":2,"microbatch":1,"left":9}`, `f:1: microbatch: 1, want 0: a step has a record for each of 1 layers and 4 microbatches, ascending`},
		{"exit", `{"step":0,"layer":2,"microbatch":4,"left":9}`, `f:1: microbatch: 4, want below 4, those of all replicas`},
		{"mod", `{"step":0,"layer":2,"microbatch":0,"taken":0.5}`, `f:1: taken: 0.5, want an integer from 0 to 128`},
		{"layerdrop", ``, `f: the load of dynamic.kind = "layerdrop" cannot be forced, want `},
		{"prune+layerdrop", ``, `f: the load of dynamic.kind = "layerdrop" cannot be forced, want prune, freeze, moe, attention, exit, mod`},
		{"attention", `{"step":0,"layer":1,"microbatch":0,"buckets":[64,64]}`, `f:1: buckets: [64,64], want a list of 16 times an integer from 0 to 128`},
		{"attention", strings.Join(buckets, "\n"), `f:8: buckets: [127 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0], want numbers that add up to 128, the tokens of a microbatch`},
		{"moe", `{"step":0,"layer":1,"microbatch":0,"tokens":[1,2]}`, `f:1: tokens: [1,2], want a list of 8 times an integer from 0 to 128`},
	} {
		path := filepath.Join(t.TempDir(), "f")
		expect.OK(t, os.WriteFile(path, []byte(c.text), 0o600))
		s := config.Default()
		s.Model.Blocks, s.Dynamic.Kind, s.Dynamic.Replay = 2, c.kind, path
		_, err := dynamic.Open(s)
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "dynamic.replay: "+filepath.Dir(path)+"/")
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s, %s: %s, want %s", c.kind, c.text, got, c.want)
		}
	}
}
