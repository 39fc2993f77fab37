package prune

import (
	"fmt"
	"strconv"

	"dynmo/src/config"
)

// options is gradual global magnitude pruning (Zhu & Gupta 2017; paper, section 2.2 and algorithm 2).
type options struct {
	Start     int     `toml:"start" default:"3000" min:"0" unit:"steps" doc:"step of the first pruning, t0" only:"train" instead:"--from"`
	Every     int     `toml:"every" default:"1000" min:"1" unit:"steps" doc:"steps between prunings, Δt" only:"train" instead:"--every"`
	Times     int     `toml:"times" default:"4" min:"1" doc:"intervals from the initial to the final sparsity, n"`
	Initial   float64 `toml:"initial" default:"0.0" min:"0" below:"1" doc:"sparsity at start, S_i"`
	Final     float64 `toml:"final" default:"0.9" min:"0" below:"1" doc:"sparsity at start + times·every, S_f"`
	Select    string  `toml:"select" default:"radix" oneof:"radix,gather" resume:"may" doc:"how the kept set is found: histograms on all ranks, or magnitudes on rank 0" only:"train"`
	Structure string  `toml:"structure" default:"unstructured" oneof:"unstructured,block32,2:4" doc:"weights that are pruned together: each weight by itself, blocks of 32 x 32 (by their sum of squares), or two of every four neighbours in a row (Mishra et al. 2021), which stay masked dense"`
	CSRFrom   string  `toml:"csr_from" default:"auto" oneof:"auto" real:"true" min:"0" max:"1" when:"prune.structure=unstructured|block32" doc:"sparsity from which a matrix is stored as CSR, below it masked; auto is where its products become faster than dense ones, which the log says"`
	Crossing  string  `toml:"crossing" default:"" only:"train" when:"prune.csr_from=auto" resume:"may" doc:"file with the output of dynmo bench spmm --json (of a GPU: bench gpu spmm --json) on this machine, which csr_from = auto then goes by; empty: by what dynmo knows of such devices"`
}

// settings is what config knows of pruning.
var settings = config.Kind{
	Name: "prune",
	Tables: []config.Table{{
		Name: "prune", Tag: `when:"dynamic.kind=prune" doc:"gradual global magnitude pruning"`, Place: 1, Settings: options{},
	}},
	Check:   check,
	Remarks: remarks,
	Resolve: resolve,
	Assume: func(c *config.Config) {
		if p := config.Of[options](*c); p.Structure != "2:4" {
			p.CSRFrom = strconv.FormatFloat(min(1, csrFrom(*c)), 'g', -1, 64)
			config.Set(c, p)
		}
	},
}

func check(c config.Config, rule config.Rule) {
	p, on := config.Of[options](c), c.Dynamic.Has("prune")
	multiple := map[string]int{"unstructured": 1, "block32": 32, "2:4": 4}[p.Structure]
	m := c.Model
	divides := m.Hidden%multiple == 0 && 2*c.Keyed()*(m.Hidden/m.Heads)%multiple == 0 && c.Inside()%multiple == 0
	rule(p.Final < p.Initial, "prune.final to be at least prune.initial", "prune.final prune.initial")
	rule(on && p.Structure == "2:4" && p.Final != 0.5,
		"prune.final = 0.5, where two of every four weights are left", "prune.final prune.structure")
	rule(on && !divides, fmt.Sprintf("model.hidden, the channels of keys and those inside the MLP to be multiples of %d", multiple),
		"model.hidden prune.structure")
	rule(on && c.ReplicasDiffer(), `parallel.experts = "local" beside prune: replicas have to prune the same matrices`, "parallel.experts dynamic.kind")
}

// prunes reports whether the settings prune any weight. What a file of loads says is not looked at.
func prunes(c config.Config) bool {
	p := config.Of[options](c)
	return c.Dynamic.Replay != "" || p.Start < c.Train.Steps && p.Initial+p.Final > 0
}

// remarks says where pruning has no effect, or changes no layer's cost.
func remarks(c config.Config) []string {
	p := config.Of[options](c)
	const none = "prune changes no layer's cost: "
	switch {
	case c.Dynamic.Replay != "":
		return nil
	case p.Start >= c.Train.Steps:
		return []string{fmt.Sprintf("prune in dynamic.kind has no effect: prune.start = %d is not below train.steps = %d", p.Start, c.Train.Steps)}
	case p.Initial == 0 && p.Final == 0:
		return []string{none + "prune.initial and prune.final = 0 remove no weight"}
	case p.Structure == "2:4":
		return []string{none + "prune.structure = \"2:4\" keeps pruned weights masked dense"}
	case csrFrom(c) > 1:
		return []string{fmt.Sprintf("%spruned weights stay masked dense on device.kind = %q. A prune.csr_from below 1 stores them as CSR", none, c.Device.Kind)}
	}
	return nil
}
