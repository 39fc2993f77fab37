package freeze

import (
	"fmt"

	"dynmo/src/config"
)

// options is an end of the training of the first layers, as Egeria decides it (Wang et al. 2022), or at one step.
type options struct {
	When      string  `toml:"when" default:"plasticity" oneof:"plasticity,step" doc:"what freezes layers: that the front-most has stopped changing (Egeria, Wang et al. 2022), or a step"`
	Start     int     `toml:"start" default:"500" min:"0" when:"freeze.when=plasticity" unit:"steps" doc:"step of the first reference, behind the warm-up"`
	Every     int     `toml:"every" default:"50" min:"1" when:"freeze.when=plasticity" unit:"steps" doc:"steps between evaluations of plasticity"`
	Reference int     `toml:"reference" default:"50" min:"1" when:"freeze.when=plasticity" unit:"steps" doc:"steps between references, int8 copies of the weights of all layers: the model that layers are compared with; a multiple of freeze.every"`
	Average   int     `toml:"average" default:"4" min:"1" max:"1000" when:"freeze.when=plasticity" doc:"evaluations that the moving average of plasticity is over; rounded up to whole times between references"`
	Window    int     `toml:"window" default:"8" min:"2" max:"1000" when:"freeze.when=plasticity" doc:"averages in a row that must not fall before a layer freezes; half as many, at least 2, each time that the layer has thawed"`
	Tolerance float64 `toml:"tolerance" default:"0.01" min:"0" below:"1" when:"freeze.when=plasticity" doc:"an average counts as not falling if the line through the window falls, from one evaluation to the next, by at most this share of the average"`
	Thaw      float64 `toml:"thaw" default:"10" min:"0" max:"1e6" when:"freeze.when=plasticity" doc:"times by which the learning rate has fallen since a layer froze that thaw all; 0: never"`
	Layers    int     `toml:"layers" default:"1" min:"1" when:"freeze.when=step" doc:"layers of the chain that freeze, from the embedding on"`
	Step      int     `toml:"step" default:"3000" min:"0" when:"freeze.when=step" unit:"steps" doc:"step from which on they are frozen"`
}

// simulated is what a simulated run assumes.
type simulated struct {
	Frozen float64 `toml:"frozen" default:"0" min:"0" max:"1" when:"dynamic.kind=freeze" doc:"largest share of the blocks that is frozen; 0: as in the small run of eight whose times of freezing the seed chooses (results/freeze-times.txt)"`
	Thaws  bool    `toml:"thaws" default:"true" when:"dynamic.kind=freeze" doc:"whether all thaw when the small run's did"`
}

// settings is what config knows of freezing.
var settings = config.Kind{
	Name: "freeze",
	Tables: []config.Table{
		{Name: "freeze", Tag: `only:"train" when:"dynamic.kind=freeze" doc:"an end of the training of the first layers"`, Place: 2, Settings: options{}},
		{Name: "simulate", Place: 4, Settings: simulated{}},
	},
	Check:   check,
	Remarks: remarks,
}

// Averaged returns how many evaluations a moving average is over: between two references
// plasticity grows, so that only whole times between them compare.
func (f options) Averaged() int {
	period := max(1, f.Reference/f.Every)
	return (f.Average + period - 1) / period * period
}

// Earliest returns the first step in which a layer can be frozen by its plasticity.
func (f options) Earliest() int { return f.Start + f.Every*(f.Averaged()+f.Window-1) + 1 }

// isByPlasticity reports whether plasticity decides, and no file (dynamic.replay).
func (f options) isByPlasticity(c config.Config) bool {
	return f.When == "plasticity" && c.Dynamic.Replay == ""
}

func check(c config.Config, rule config.Rule) {
	f := config.Of[options](c)
	byPlasticity, atStep := c.Dynamic.Has("freeze") && f.isByPlasticity(c), c.Dynamic.Has("freeze") && f.When == "step" && c.Dynamic.Replay == ""
	rule(c.ReplicasDiffer() && byPlasticity, `parallel.experts = "local" beside freeze.when = "plasticity": a layer's reference answers without the experts of other replicas`, "parallel.experts dynamic.kind freeze.when")
	rule(byPlasticity && f.Reference%f.Every != 0, "freeze.reference to be a multiple of freeze.every", "freeze.reference freeze.every")
	rule(byPlasticity && f.Thaw > 0 && f.Thaw <= 1, "0 (never) or a factor above 1", "freeze.thaw")
	rule(byPlasticity && c.Model.Blocks < 2, "at least 2 blocks: the last never freezes", "model.blocks dynamic.kind")
	rule(byPlasticity && f.Earliest() >= c.Train.Steps, fmt.Sprintf("a run of more than %d steps: no layer freezes before freeze.window averages of freeze.average evaluations", f.Earliest()),
		"freeze.window freeze.average freeze.every freeze.start train.steps")
	rule(atStep && f.Layers > c.Layers(), fmt.Sprintf("freeze.layers to be at most the %d layers", c.Layers()), "freeze.layers")
}

// remarks says where freezing has no effect, or compares few samples.
func remarks(c config.Config) []string {
	f, sequences := config.Of[options](c), c.Parallel.Microbatches*c.Parallel.MicrobatchSize
	switch {
	case c.Dynamic.Replay != "":
	case f.When == "step" && f.Step >= c.Train.Steps:
		return []string{fmt.Sprintf("freeze in dynamic.kind has no effect: freeze.step = %d is not below train.steps = %d", f.Step, c.Train.Steps)}
	case f.When == "plasticity" && sequences < samples:
		return []string{fmt.Sprintf("freeze compares layers by the %d sequences that a replica has in a step, fewer than %d", sequences, samples)}
	}
	return nil
}
