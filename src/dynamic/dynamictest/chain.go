// Package dynamictest makes chains for tests of workloads.
package dynamictest

import (
	"fmt"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
)

// Chain returns a chain of equal blocks between embedding and head.
func Chain(t *testing.T, blocks int, run dynamic.MadeUp) *dynamic.Chain {
	t.Helper()
	layer := func(name string) cost.Layer {
		return cost.Layer{Name: name, Forward: 1, BackwardInput: 1, BackwardWeight: 1, NonZeros: 1_000_000}
	}
	layers := []cost.Layer{layer("embedding")}
	for b := range blocks {
		layers = append(layers, layer(fmt.Sprintf("block.%d", b)))
	}
	c, err := dynamic.NewChain(append(layers, layer("head")), run)
	expect.OK(t, err)
	return c
}
