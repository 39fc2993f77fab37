package moe

import (
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/kind/moe/routing"
	"dynmo/src/piece"
)

// simulatedExperts is a mixture of experts that are spread over the ranks of a simulated run. The
// fullest rank sets the time of a layer. The dense costs stand for equal loads. An MLP takes longer by
// the fullest rank's load over the mean load. Rows are those of the routers of a small trained model,
// or made up.
type simulatedExperts struct {
	recording routing.Recording // without slots: rows are made up
	routing   string
	block     int // rows that a copy works on at a time: fewer in recordings, whose microbatches are small
	placing   *placing
}

// recorded returns the workload of the settings.
func recorded(c config.Config) dynamic.Workload {
	s := config.Of[simulated](c)
	w, experts, ranks := simulatedExperts{routing: s.Routing, block: 256}, s.Experts, s.ExpertRanks
	if s.ExpertSpare > 0 {
		ranks = c.Parallel.Replicas
	}
	if slices.Contains(routing.Recordings(), s.Routing) {
		r, err := routing.Named(s.Routing)
		if err != nil {
			panic("moe: settings name a recording that the program has not")
		}
		w.recording, w.block, experts = r, 16, r.Experts
	}
	w.placing = newPlacing(placeEven, experts, min(ranks, experts), 0, 1)
	return w
}

// simulatedPlacing returns what places experts in simulated runs of the settings; nil: nothing does.
func simulatedPlacing(c config.Config) dynamic.Placing {
	s := config.Of[simulated](c)
	if s.ExpertSpare == 0 {
		return nil
	}
	w := recorded(c).(simulatedExperts)
	p := newPlacing(placeCopies, w.placing.experts, w.placing.replicas, s.ExpertSpare, w.block)
	p.setBytes(c)
	return p
}

// rows returns what says the rows of the blocks of a chain.
func (w simulatedExperts) rows(c *dynamic.Chain) func(step, block, microbatch int) []int64 {
	if w.recording.Slots > 0 {
		return w.recording.Rows(c.Count, c.Seed)
	}
	p := w.placing
	rows, err := routing.MadeUp{Experts: p.experts, Replicas: p.replicas, Rows: rowsOfReplica * p.replicas, Seed: c.Seed}.Named(w.routing)
	if err != nil {
		panic("moe: settings name a routing that cannot be made up")
	}
	return rows
}

// rowsOfReplica is the rows of a microbatch of a replica of made-up routings: 4096 tokens, each
// to two experts.
const rowsOfReplica = 1 << 13

// Costs change with every step.
func (w simulatedExperts) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	rows := w.rows(c)
	r := &cost.Routed{Name: assigned.Name, Values: make([][][]int64, len(c.Blocks)), Share: make([]float64, len(c.Blocks))}
	for l, b := range c.Blocks {
		if b.Index < 0 || b.MLP == 0 {
			continue
		}
		r.Share[l] = b.MLP
		for m := range c.Microbatches {
			r.Values[l] = append(r.Values[l], append(make([]int64, countsFrom), rows(step, b.Index, m)...))
		}
	}
	scale := r.Scale(r.Loads(func(l int, values []int64) float64 { return w.placing.Load(piece.Assignment{}, l, values) }))
	for l := range scale {
		if scale[l] == nil {
			scale[l] = slices.Repeat([]float64{1}, c.Microbatches)
		}
	}
	return dynamic.Costs{Layers: c.Layers, Scale: scale, Routed: r}
}
