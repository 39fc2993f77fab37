// Package experts says what balancing is worth in mixtures of experts that are spread over
// the replicas of a stage, by simulated runs. What comes in are measured costs of layers
// and the recorded routing of trained models; what goes out is how long steps take on
// cuts that never move, under each balancer, and if experts are balanced inside of their
// layer instead (Tutel's way), or besides.
package experts

import (
	"fmt"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic/routing"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/plan/search"
)

const (
	// stages and microbatches are those that tables of real steps have (study/dynamism):
	// microbatches are four times the stages, as in the paper's appendix A.
	stages, microbatches = 8, 4 * stages
	// steps of a run, of which the last third is looked at.
	steps, settled = 12, 4
)

// Case is a model with recorded routing, whose experts lie spread over the replicas.
type Case struct {
	Options
	Name  string
	Paper Claims

	routing routing.Recording
	config  config.Config
	chain   cost.Table // with experts whose loads are equal
	shares  []bool     // by layer: its experts' fullest rank sets its time
	block   []int      // by layer: its block in the chain, -1 for none
	experts cost.Stage // seconds of a block's experts
}

// Claims are the paper's speedups of a model (section 4.1; with mixture of depths, that of
// these), 0 where it has none.
type Claims struct{ Static, Tutel float64 }

// claims returns the paper's of a recording.
func claims(name string) Claims {
	switch {
	case strings.Contains(name, "-mod"):
		return Claims{Static: 1.17}
	case strings.HasPrefix(name, "llama"):
		return Claims{1.23, 1.21}
	}
	return Claims{1.21, 1.18}
}

// Options are what a case is simulated with.
type Options struct {
	Replicas int     // over which the experts of a layer are spread
	Faster   float64 // times the device of the costs
}

// NewCase returns the case of a recording on the costs of a model with as many experts: a
// phase that profile wrote, whose layers are halves of blocks. The chain has the
// recording's blocks.
func NewCase(r routing.Recording, costs cost.Phase, o Options) (*Case, error) {
	fail := func(err error) (*Case, error) { return nil, fmt.Errorf("%s: %w", r.Name, err) }
	if r.Experts%o.Replicas != 0 {
		return fail(fmt.Errorf("%d replicas: want a divisor of the %d experts", o.Replicas, r.Experts))
	}
	if strings.Contains(costs.Model, "parallel.experts=spread") {
		return fail(fmt.Errorf("costs of %q: want those of parallel.experts=local: what spread ones take more is added here", costs.Model))
	}
	kind := "moe"
	if strings.Contains(r.Name, "-mod") {
		kind = "moe+mod"
	}
	sets := append(strings.Fields(costs.Model),
		fmt.Sprintf("model.blocks=%d", r.Blocks), "dynamic.kind="+kind, "balance.every=1", fmt.Sprintf("parallel.stages=%d", stages),
		fmt.Sprintf("parallel.microbatches=%d", microbatches), fmt.Sprintf("parallel.replicas=%d", o.Replicas), "parallel.experts=spread")
	c, err := config.Load("", sets)
	if err != nil {
		return fail(fmt.Errorf("costs of %q: %w", costs.Model, err))
	}
	if config.Of[moe.Settings](c).Experts != r.Experts || config.Of[moe.Settings](c).Top != r.Top || c.Model.Grain != "half" {
		return fail(fmt.Errorf("costs of %q: want those of model.grain=half moe.experts=%d moe.top=%d", costs.Model, r.Experts, r.Top))
	}
	k := &Case{Name: r.Name, Options: o, Paper: claims(r.Name), routing: r, config: c, chain: search.Dense(c)}
	return k, k.fill(costs)
}

// fill sets the seconds of the chain to those of costs.
func (k *Case) fill(costs cost.Phase) error {
	k.chain.Clock = "sim"
	seconds := make(map[string]cost.Stage)
	for _, l := range costs.Layers {
		seconds[l.Name] = l.Stage().Scale(1 / k.Faster)
	}
	exchange := k.exchange()
	attention, mlp := seconds["block.0.attention"], seconds["block.0.mlp"]
	mlp.Forward += exchange
	mlp.Input += exchange
	k.experts = mlp
	for i, d := range model.FromConfig(k.config).Chain() {
		l := &k.chain.Layers[i]
		switch d.Kind {
		case model.Attention:
			*l = l.With(attention)
		case model.MLP:
			*l = l.With(mlp)
		case model.Block:
			*l = l.With(attention.Plus(mlp))
		default:
			s, ok := seconds[d.Name]
			if !ok {
				return fmt.Errorf("%s: costs have no layer %s", k.Name, d.Name)
			}
			*l = l.With(s)
		}
		k.shares, k.block = append(k.shares, d.Kind == model.MLP || d.Kind == model.Block), append(k.block, d.Block)
	}
	return nil
}

// exchange returns the seconds in which a rank with as many assignments as the others
// sends out those of its tokens and gets what experts make of them, which the fullest rank
// takes longer for: 2·((D-1)·latency + (D-1)/D·tokens·top·channels·4/bandwidth).
func (k *Case) exchange() float64 {
	c, others := k.config, float64(k.Replicas-1)
	tokens := float64(c.Model.Sequence * c.Parallel.MicrobatchSize * config.Of[moe.Settings](c).Top)
	bytes := others / float64(k.Replicas) * tokens * float64(4*c.Model.Hidden)
	seconds := others * c.Comm.LatencySeconds
	if c.Comm.BandwidthBytes > 0 {
		seconds += bytes / c.Comm.BandwidthBytes
	}
	return 2 * seconds
}
