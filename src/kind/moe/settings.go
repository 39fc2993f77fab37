package moe

import (
	"fmt"
	"strconv"
	"strings"

	"dynmo/src/config"
	"dynmo/src/kind/moe/place"
	"dynmo/src/model/llama"
)

// options is a mixture of experts (Jiang et al. 2024; paper, section 2.2.1).
type options struct {
	Experts      int     `toml:"experts" shape:"true" default:"8" min:"1" max:"65536" doc:"experts of a block, gated MLPs; AdamW updates one that no token reached in a step too, with a gradient of 0: its moments shrink and its weights decay, as in Megatron-LM and unlike in PyTorch, which skips a parameter without a gradient"`
	Top          int     `toml:"top" shape:"true" default:"2" min:"1" max:"65536" doc:"experts that a token goes to, at most moe.experts"`
	Intermediate int     `toml:"intermediate" shape:"true" default:"0" min:"0" max:"16777216" doc:"channels inside an expert; 0: model.intermediate"`
	Balance      string  `toml:"balance" shape:"true" default:"aux" oneof:"aux,s-base" doc:"how loads are kept equal: by a loss, whose weight is moe.aux; or by S-BASE, which scales the router's probabilities until each expert has its share (Sinkhorn; Clark et al. 2022)"`
	Deviation    float64 `toml:"deviation" default:"8" min:"0" max:"1000" when:"moe.balance=s-base" doc:"mean deviation of a token's logits to which S-BASE stretches them before it scales them; whole tokens are then about as balanced as their shares; 0: logits stay as they are. The stretch is this program's, not Clark et al.'s"`
	Rounds       int     `toml:"rounds" default:"16" min:"1" max:"1000" when:"moe.balance=s-base" doc:"how often S-BASE scales to equal sums of tokens and of experts; how many there are is this program's choice too"`
	Router       string  `toml:"router" shape:"true" default:"linear" oneof:"linear,mlp" doc:"what scores the experts for a token: a matrix, or, as in LLaMA-MoE, two with tanh between (mlp)"`
	Scale        float64 `toml:"scale" default:"1" above:"0" max:"65536" doc:"times the router's weights that what experts make is taken; LLaMA-MoE, whose experts are parts of one MLP, has 4 for 4 of 16"`
	Aux          float64 `toml:"aux" default:"0.01" min:"0" max:"1000" when:"moe.balance=aux" doc:"weight of the loss E·Σ f·P of each block and microbatch (Fedus et al. 2022), with E experts, f an expert's share of the choices and P its mean probability; it is not part of the loss that is reported. Hugging Face's router_aux_loss_coef weighs one loss of all blocks together, whose f sums to moe.top: coef·moe.top/model.blocks has the same sum where all blocks route alike, and other gradients where they do not"`
	Z            float64 `toml:"z" default:"0" min:"0" max:"1000" doc:"weight of the router's z-loss, the mean square of the logarithm of its softmax's denominator (Zoph et al. 2022); it is not part of the loss that is reported; Mixtral has none"`
	Capacity     float64 `toml:"capacity" shape:"true" default:"0" min:"0" max:"65536" doc:"times its fair share that an expert takes of a microbatch's assignments, rounded up; those beyond are dropped and counted; 0: none is"`
	BlockRows    int     `toml:"block_rows" resume:"losses agree up to rounding" shape:"true" default:"0" min:"0" max:"1048576" doc:"rows of a block: the rows of an expert in a microbatch of all replicas, in the order of replicas and tokens, are cut into blocks of this length; blocks may lie on several replicas (moe.spare), and losses do not depend on where; 512 suits CPUs; 0: an expert's rows are one product, on one replica"`
	Spare        int     `toml:"spare" resume:"may" shape:"true" default:"0" min:"0" max:"65536" when:"parallel.experts=spread" doc:"places of a replica for copies of experts, in each block, besides its even share of them; a copy works on some of its expert's blocks; wants moe.block_rows"`
	Placing      string  `toml:"placing" resume:"may" default:"copies" oneof:"copies,owners,eplb,even" when:"parallel.experts=spread" doc:"what decides which replicas hold which experts, where moe.spare is above 0: copies, and owners where that pays (copies); owners alone (owners); DeepSeek's EPLB (eplb); nothing, experts lie evenly (even). A resumed run keeps its copies; the forecast of loads, a mean of at most 8 steps, starts again, which changes no bit"`
	Groups       int     `toml:"groups" shape:"true" default:"2" min:"2" max:"65536" when:"model.grain=expert" doc:"layers that a block's experts are shared out to, a divisor of moe.experts; a boundary between two is more than twice as wide as others"`
}

// parallel is where experts are.
type parallel struct {
	Experts string `toml:"experts" resume:"losses agree up to rounding" shape:"true" default:"local" oneof:"local,spread" when:"dynamic.kind=moe" only:"train" doc:"where the experts of a block are: all on every replica of its stage; or spread, as many on each, which tokens are sent to"`
}

// simulated is what a simulated run assumes.
type simulated struct {
	Routing     string `toml:"routing" default:"mixtral-24-aux-other" oneof:"llama-24-aux-other,llama-32-aux,llama-32-s-base,mixtral-24-aux-other,mixtral-32-aux,mixtral-32-s-base,burst,hot-rank,rotating,zipf-0.5,zipf-1" when:"dynamic.kind=moe" doc:"recorded routing of a small trained model: its model, its blocks, and its way to keep loads equal; other: on other text than it trained on. Or one that is made up: zipf: loads fall as 1/k or its root; hot-rank: a rank has four times the load; rotating: an expert has eight times the load, another one every 20 steps; burst: an expert has 30 % for 10 steps of 40; all change by up to 20 % in every step"`
	Experts     int    `toml:"experts" default:"64" min:"1" max:"65536" when:"dynamic.kind=moe" doc:"experts of a block, where simulate.routing is made up"`
	ExpertRanks int    `toml:"expert_ranks" default:"8" min:"1" max:"65536" when:"dynamic.kind=moe" doc:"ranks over which a layer's experts are spread; the fullest rank sets the layer's time; at most as many as experts"`
	ExpertSpare int    `toml:"expert_spare" default:"0" min:"0" max:"65536" when:"dynamic.kind=moe" doc:"places of a rank for copies of experts, which are placed as moe.placing = copies does in training; the ranks are then parallel.replicas; weights and gradients of copies take the time of their bytes; 0: experts stay"`
}

// settings is what config knows of experts.
var settings = config.Kind{
	Name: "moe", Structural: true,
	Tables: []config.Table{
		{Name: "moe", Tag: `only:"train" when:"dynamic.kind=moe" doc:"a mixture of experts: a block has several MLPs, and each token takes a few of them; model.family has to be llama"`, Place: 4, Settings: options{}},
		{Name: "parallel", Settings: parallel{}},
		{Name: "simulate", Place: 1, Settings: simulated{}},
	},
	Check: check,
	Remarks: func(c config.Config) []string {
		if m := config.Of[options](c); m.Top >= m.Experts {
			return []string{fmt.Sprintf("moe changes no layer's cost: every token goes to each of the %d experts", m.Experts)}
		}
		return nil
	},
	Shape:          shape,
	ReplicasDiffer: spread,
}

// spread reports whether there are several replicas and experts are spread over them.
func spread(c config.Config) bool {
	return c.Dynamic.Has("moe") && config.Of[parallel](c).Experts == "spread" && c.Parallel.Replicas > 1
}

// had returns the settings with the moe.spare that costs of a shape hold for: seconds do not depend
// on spare places.
func had(c config.Config, shape string) config.Config {
	m := config.Of[options](c)
	if _, rest, ok := strings.Cut(shape, " moe.spare="); ok {
		text, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(text); err == nil {
			m.Spare = n
			config.Set(&c, m)
		}
	}
	return c
}

// lean returns the settings without spare places.
func lean(c config.Config) (set string, lean config.Config) {
	m := config.Of[options](c)
	if !spread(c) || m.Spare == 0 {
		return "", c
	}
	m.Spare = 0
	config.Set(&c, m)
	return "moe.spare = 0", c
}

// shape gives blocks experts, of their own width, in place of one MLP.
func shape(c config.Config, s *config.Shape) {
	m := config.Of[options](c)
	if m.Intermediate > 0 {
		s.Inside = m.Intermediate
	}
	s.MLPs, s.Taken, s.Router = m.Experts, m.Top, float64(c.Model.Hidden)*float64(m.Experts)
	if m.Router == "mlp" {
		s.Router += float64(m.Experts * m.Experts)
	}
	if c.Model.Grain == "expert" {
		s.PerBlock = 1 + m.Groups
	}
}

func check(c config.Config, rule config.Rule) {
	m, on, spread, groups := config.Of[options](c), c.Dynamic.Has("moe"), spread(c), c.Model.Grain == "expert"
	rule(on && c.Model.Family != llama.Name, `model.family = "llama": its experts are gated MLPs`, "dynamic.kind model.family")
	rule(on && m.Top > m.Experts, "moe.top to be at most moe.experts", "moe.top moe.experts")
	rule(groups && !on, `dynamic.kind with moe: only experts have groups`, "model.grain dynamic.kind")
	rule(groups && on && m.Experts%m.Groups != 0, "moe.groups to divide moe.experts", "moe.groups moe.experts")
	rule(spread && groups, `parallel.experts = "local" beside model.grain = "expert"`, "parallel.experts model.grain")
	rule(spread && m.BlockRows == 0 && m.Experts%c.Parallel.Replicas != 0, "parallel.replicas to divide moe.experts, which are spread over them, or moe.block_rows", "parallel.replicas moe.experts parallel.experts moe.block_rows")
	rule(spread && m.Spare > 0 && m.BlockRows == 0, "moe.block_rows of at least 1: without blocks the rows of an expert are one product", "moe.spare moe.block_rows")
	rule(spread && m.Spare > 0 && place.Places(m.Experts, c.Parallel.Replicas, m.Spare) > m.Experts, "moe.spare of at most the experts that are left: a replica holds each of moe.experts once", "moe.spare moe.experts parallel.replicas")
	rule(on && m.Spare > 0 && !spread, `parallel.experts = "spread" and several parallel.replicas: a copy lies on another replica than its expert`, "moe.spare parallel.experts parallel.replicas")
	rule(spread && m.BlockRows > 0 && c.Sharded(), "moe.block_rows = 0 beside optimizer.shard: experts that move take no slices along yet", "moe.block_rows optimizer.shard")
	rule(spread && m.BlockRows > 0 && c.Device.Kind == "cuda", `moe.block_rows = 0 beside device.kind = "cuda": blocks are not built for cuda yet`, "moe.block_rows device.kind")
}
