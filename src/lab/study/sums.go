package study

import (
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/schedule"
)

// SumTraffic is what a rank sends in a step to sum gradients over replicas: of each number the
// most that any rank sends, by formula.
type SumTraffic struct {
	Sum         string `json:"sum"` // of the settings
	Group       int    `json:"sum_group"`
	Add         int64  `json:"add_bytes"`               // until the owner of a share has its sum
	Back        int64  `json:"back_bytes"`              // sums, to all other replicas
	AddBetween  int64  `json:"add_bytes_between_nodes"` // of Add; 0 where the network has one node
	BackBetween int64  `json:"back_bytes_between_nodes"`
}

// Sums returns the traffic of the gradient sums in a layout, nil without replicas.
func Sums(t cost.Table, l layout.Layout, o Options) *SumTraffic {
	d := l.Mesh.Replicas
	if d <= 1 {
		return nil
	}
	most := SumTraffic{Sum: o.Config.Comm.Sum, Group: o.Config.Comm.SumGroup}
	sums, owners := schedule.SumsOf(o.Config), l.Owners()
	summed := make([]int64, l.Mesh.Stages)
	for layer, stage := range owners {
		summed[stage] += t.Layers[layer].Summed()
	}
	node := func(stage, replica int) int {
		return l.World(l.Mesh.Rank(stage, replica)) / max(1, o.Network.PerNode)
	}
	for stage, bytes := range summed {
		for from := range d {
			var sent, between [2]float64 // to add, back
			for round := range sums.Rounds(d) + 1 {
				for to := range d {
					back := round / sums.Rounds(d)
					own := sums.Shares(round, from, to, d) / float64(d) * float64(bytes)
					sent[back] += own
					if o.Network.PerNode > 0 && node(stage, from) != node(stage, to) {
						between[back] += own
					}
				}
			}
			most.Add, most.Back = max(most.Add, int64(sent[0])), max(most.Back, int64(sent[1]))
			most.AddBetween, most.BackBetween = max(most.AddBetween, int64(between[0])), max(most.BackBetween, int64(between[1]))
		}
	}
	return &most
}
