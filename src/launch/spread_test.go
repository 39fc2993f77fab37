package launch

import (
	"testing"

	"dynmo/src/config"
)

// spread is a LLaMA of two replicas that share six experts out.
func spread(c config.Config) config.Config {
	c = llama(c)
	c.Moe.Experts, c.Moe.Top, c.Moe.Intermediate = 6, 2, 24
	c.Parallel.Replicas, c.Parallel.Experts = 2, "spread"
	return c
}

// TestSpreadExpertsKeepLaw1: experts that replicas share out, alone and with every kind of
// change that goes with them, have the losses, gradient norms and final hash of one stage
// that never moved a layer.
func TestSpreadExpertsKeepLaw1(t *testing.T) {
	keepLaw1(t, 13, spread, []mix{{"moe", nil}, {"moe+mod", dropping}, {"moe", sBase}, {"moe+exit", propagated}, {"moe+exit+mod", nil}, {"moe+exit", saturation}})
}
