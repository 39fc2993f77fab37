package verdict

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// TestStayed: the sentence follows from the decisions of the run and from what its layers
// cost: the embedding and the blocks a millisecond each, the slices of the head as given.
func TestStayed(t *testing.T) {
	keep := func(why string, gain, least float64) record.Event {
		return record.Event{Kind: record.Balance, Detail: map[string]any{"kept": why, "gain": gain, "gain_least": least}}
	}
	best := keep("best", 0, 0)
	const nothing = "no move was predicted to pay"
	for _, c := range []struct {
		name   string
		blocks int
		head   float64 // milliseconds
		cuts   partition.Partition
		set    func(*config.Config)
		events []record.Event
		want   string
	}{
		{"static", 4, 1, partition.Partition{0, 3, 6}, func(c *config.Config) { c.Balance.Kind = "uniform" }, nil,
			"balance.kind = uniform never moves layers. Use balance.kind = partition"},
		{"never asked", 4, 1, partition.Partition{0, 3, 6}, func(c *config.Config) { c.Balance.Every = "500" }, nil,
			"nothing was decided in the 9 steps of the run: balance.every = 500. Use a smaller balance.every or more steps"},
		{"never due", 4, 1, partition.Partition{0, 3, 6}, func(c *config.Config) { c.Balance.Every = "auto" }, nil,
			"the best move would have saved at most 1 % of a step"},
		{"never known", 4, 1, partition.Partition{0, 3, 6}, func(c *config.Config) { c.Balance.Every, c.Parallel.Microbatches = "auto", 2 }, nil,
			"balance.every = auto did not know the costs: the model changed after every two steps or sooner. Use parallel.microbatches of 4 or more"},
		{"best", 4, 1, partition.Partition{0, 3, 6}, nil, []record.Event{best, best}, nothing},
		{"small gain", 4, 1, partition.Partition{0, 3, 6}, nil, []record.Event{best, keep("best", 0.004, 0.004)},
			"the best move was predicted to save 0.4 % of a step, below the threshold of 1 %"},
		{"noise", 4, 1, partition.Partition{0, 3, 6}, nil, []record.Event{keep("best", 0.004, 0.004), keep("uncertain", 0.028, -0.026), best},
			"the best move was predicted to save 2.8 % of a step, uncertain by 5.4 %. A longer run or a quieter host measures costs better"},
		{"price", 4, 1, partition.Partition{0, 3, 6}, nil, []record.Event{keep("price", 0.05, 0.04)},
			"the best move was predicted to save 5.0 % of a step, less than its price. A faster network between the ranks would help"},
		{"memory", 4, 1, partition.Partition{0, 3, 6}, nil, []record.Event{{Kind: record.Balance, Detail: map[string]any{"kept": "stage 1 lacks 3 bytes"}}},
			"memory allows no other placement: stage 1 lacks 3 bytes. Raise balance.memory_limit_bytes or use more stages"},
		{"refused", 4, 1, partition.Partition{0, 3, 6}, nil, []record.Event{{Kind: record.Migrate, Detail: map[string]any{"refused": "no memory"}}, best},
			"a rank had no memory for the move. Lower balance.memory_limit_bytes, so that such a move is not tried"},
		{"a block for each stage", 2, 1, partition.Partition{0, 2, 4}, nil, []record.Event{best},
			nothing + ". 2 blocks on 2 stages leave no choice: any move puts two on one stage. Use fewer stages or model.grain = half"},
		{"half a block for each stage", 1, 1, partition.Partition{0, 2, 4}, func(c *config.Config) { c.Model.Grain = "half" }, []record.Event{best},
			nothing + ". 2 parts of blocks on 2 stages leave no choice: any move puts two on one stage. Use fewer stages"},
		{"head", 4, 9, partition.Partition{0, 5, 6}, nil, []record.Event{best},
			nothing + ". The slowest stage holds one layer, which cannot be divided: a slice of the head. Use a model.head_shards above 1"},
		{"moved", 4, 1, partition.Partition{0, 3, 6}, func(c *config.Config) { c.Run.Name = "moved" }, []record.Event{best}, ""},
	} {
		settings := config.Default()
		settings.Model.Blocks, settings.Parallel.Stages, settings.Balance.Every = c.blocks, 2, "1"
		if c.set != nil {
			c.set(&settings)
		}
		var tally Tally
		for step := range 9 {
			cuts := []int{0, 1, 2}
			if c.name == "moved" && step > 4 {
				cuts = []int{0, 0, 2}
			}
			tally.Step(record.Metrics{Step: step, Cuts: cuts})
		}
		for _, e := range c.events {
			tally.Event(e)
		}
		order, err := schedule.New(schedule.Kind1F1B, 2, 1, 2)
		expect.OK(t, err)
		table := cost.Table{Layers: make([]cost.Layer, settings.Layers())}
		for l := range table.Layers {
			table.Layers[l].Forward = 1e-3
		}
		table.Layers[len(table.Layers)-1].Forward = 1e-3 * c.head
		steps := 9
		if c.name == "never known" {
			steps = 2
		}
		tally.Costs(record.Phase{Phase: cost.Phase{Steps: steps, Table: table}, Run: &record.Course{Layout: layout.New(c.cuts, order, 1, layout.StageMajor)}})
		if got := tally.Stayed(settings); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
