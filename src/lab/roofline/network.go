package roofline

import (
	"embed"
	"fmt"

	"dynmo/src/sim"
)

// networks has a description of a network of each known GPU's nodes, cluster-NODES.toml.
//
//go:embed cluster-*.toml
var networks embed.FS

// Network returns the network of nodes of a known GPU.
func Network(gpu string) (sim.Network, error) {
	g, err := Known(gpu)
	if err != nil {
		return sim.Network{}, err
	}
	name := "cluster-" + g.Nodes + ".toml"
	f, err := networks.Open(name)
	if err != nil {
		return sim.Network{}, fmt.Errorf("roofline: %w", err)
	}
	defer f.Close()
	return sim.ReadNetwork(name, f)
}
