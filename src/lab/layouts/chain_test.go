package layouts

import (
	"strings"
	"testing"

	"dynmo/src/cost"
)

// TestChainsThatAreRefused: layouts for a part of a model would make a model without the rest.
func TestChainsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		names, trainer, want string
	}{
		{"embedding block.0 block.1 head", "torchtitan", ""},
		{"block.0 block.1 head", "megatron", `the first layer is "block.0": want the embedding before it`},
		{"embedding block.0 block.1", "torchtitan", `the last layer is "block.1": want the head behind it`},
		{"embedding block.0 block.0 head", "deepspeed", `layer 2, "block.0": a second time, want each layer once`},
		{"embedding block.0 head head", "deepspeed", `layer 3, "head": a second time`},
		{"embedding block.1 head", "deepspeed", `layer 1, "block.1": want number 0`},
		{"embedding block.0 block.2 head", "deepspeed", `layer 2, "block.2": want number 1`},
	} {
		trainer, err := TrainerNamed(c.trainer)
		if err != nil {
			t.Fatal(err)
		}
		var table cost.Table
		for _, name := range strings.Fields(c.names) {
			table.Layers = append(table.Layers, cost.Layer{Name: name}.WithSeconds(cost.Stage{Forward: 1, Input: 1, Weight: 1}))
		}
		_, err = Plan(Request{Problem: Problem{Stages: 2, Microbatches: 4}, Trainer: trainer}, table)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s for %s: error %v, want %q", c.names, c.trainer, err, c.want)
		}
	}
}
