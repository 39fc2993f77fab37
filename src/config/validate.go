package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	// mostRanks bounds what is counted by rank: 700 times the largest run of the paper.
	mostRanks = 1 << 19
	// mostPasses bounds a schedule, which is made in seconds then: 60 times that of
	// the largest run of the paper.
	mostPasses = 1 << 22
	// mostBytes keeps every sum of bytes far from the largest integer.
	mostBytes = 1 << 58
)

// Validate returns an error that joins every setting outside its range and
// every combination that no run can have.
func (c Config) Validate() error { return errors.Join(c.problems(nil)...) }

// problems returns the errors that Validate joins. origin holds where settings
// were set, by name; the others are defaults.
func (c Config) problems(origin map[string]string) []error {
	list := settings(&c)
	var problems []error
	refuse := func(wanted string, names ...string) {
		where := "config"
		values := make([]string, len(names))
		for i, name := range names {
			s, _ := find(list, name)
			values[i] = name + " = " + shown(s.text())
			if o, ok := origin[name]; ok && where == "config" {
				where = o
			}
		}
		problems = append(problems, fmt.Errorf("%s: %s: wanted %s", where, strings.Join(values, ", "), wanted))
	}
	for _, s := range list {
		if !s.valid() {
			refuse(s.wanted(), s.name())
		}
	}
	if problems != nil {
		return problems // combinations of wrong values mean nothing
	}
	layers, v := c.Layers(), c.Schedule.Virtual()
	most := "a stage for each"
	if v > 1 {
		most = fmt.Sprintf("a chunk (%d on a stage) for each", v)
	}
	fits := v*c.Parallel.Stages <= layers // else one error is enough
	_, regex := regexp.Compile(c.Balance.Regex)
	b := c.Attention.Buckets
	byPlasticity := c.ByPlasticity()
	virtual, gpu := c.Run.Clock == "virtual", c.Device.Kind == "cuda"
	for _, combination := range []struct {
		wrong  bool
		wanted string
		names  string
	}{
		{c.Model.Hidden%c.Model.Heads != 0, "model.hidden to be a multiple of model.heads", "model.hidden model.heads"},
		{c.Model.Llama() && c.Model.Heads%c.Model.Keyed() != 0, "model.key_value_heads to divide model.heads", "model.key_value_heads model.heads"},
		{c.Model.Llama() && c.Model.Hidden/c.Model.Heads%2 != 0, "an even number of channels of a head, whose halves rotate", "model.hidden model.heads"},
		{c.Model.Llama() && c.Model.RopeScaling == "llama3" && c.Model.RopeLow >= c.Model.RopeHigh, "model.rope_low_freq_factor to be below model.rope_high_freq_factor",
			"model.rope_low_freq_factor model.rope_high_freq_factor"},
		{c.Model.Keyed() != c.Model.Heads && c.Dynamic.Has("attention"), "as many key-value heads as heads beside attention, whose buckets are of each head's own keys",
			"model.key_value_heads dynamic.kind"},
		{c.Model.Keyed() != c.Model.Heads && c.Dynamic.Has("exit") && c.Exit.Propagate,
			"as many key-value heads as heads where states of tokens that left go on", "model.key_value_heads exit.propagate"},
		{c.Model.HeadShards > c.Model.Vocab, "model.head_shards to be at most model.vocab", "model.head_shards model.vocab"},
		{!fits, fmt.Sprintf("at most %s of the %d layers (embedding, blocks in model.grain, model.head_shards)", most, layers),
			"parallel.stages model.blocks model.grain model.head_shards"},
		{fits && c.Parallel.Stages*c.Parallel.Replicas > mostRanks, fmt.Sprintf("at most %d ranks", mostRanks), "parallel.stages parallel.replicas"},
		{fits && v*c.Parallel.Stages*c.Parallel.Microbatches > mostPasses, fmt.Sprintf("at most %d microbatches of all chunks of all stages", mostPasses),
			"parallel.stages parallel.microbatches schedule.kind"},
		{c.bytes() > mostBytes, "weights and activations of less than 2^58 bytes", "model.blocks model.hidden model.vocab model.sequence " +
			"parallel.microbatch_size parallel.microbatches"},
		{c.Comm.BandwidthBytes > 0 && c.Comm.BandwidthBytes < 1000, "0 (infinite) or at least 1000 bytes/second", "comm.bandwidth_bytes"},
		{v > 1 && c.Balance.Kind == "diffusion", "a schedule with one chunk on a stage: diffusion moves layers between neighbours", "balance.kind schedule.kind"},
		{c.Schedule.Kind == "file" && c.Schedule.File == "", "a file", "schedule.file schedule.kind"},
		{c.Balance.Kind == "layout" && c.Balance.Layout == "", "a layout", "balance.layout balance.kind"},
		{c.Repack.Kind == "first-fit" && c.Balance.MemoryLimitBytes == 0 && c.Repack.Stages == 1,
			"a limit or more than one stage: first-fit merges stages as long as their memory fits", "balance.memory_limit_bytes repack.stages repack.kind"},
		{c.Optimizer.MinLR > c.Optimizer.LR, "optimizer.min_lr to be at most optimizer.lr", "optimizer.min_lr optimizer.lr"},
		{c.Prune.Final < c.Prune.Initial, "prune.final to be at least prune.initial", "prune.final prune.initial"},
		{c.Dynamic.Has("prune") && c.Prune.Structure == "2:4" && c.Prune.Final != 0.5,
			"prune.final = 0.5, where two of every four weights are left", "prune.final prune.structure"},
		{c.Dynamic.Has("prune") && !c.divides(c.Prune.together()), fmt.Sprintf("model.hidden, the channels of keys and those inside the MLP to be multiples of %d", c.Prune.together()),
			"model.hidden prune.structure"},
		{c.Simulate.Densest < c.Simulate.Sparsest, "simulate.density_most to be at least simulate.density_least", "simulate.density_most simulate.density_least"},
		{c.Dynamic.Has("attention") && (b&(b-1) != 0 || b > c.Model.Sequence), "a power of two, at most model.sequence", "attention.buckets model.sequence"},
		{c.Dynamic.Has("moe") && !c.Model.Llama(), `model.family = "llama": its experts are gated MLPs`, "dynamic.kind model.family"},
		{c.Dynamic.Has("moe") && c.Moe.Top > c.Moe.Experts, "moe.top to be at most moe.experts", "moe.top moe.experts"},
		{c.Model.Grain == "expert" && !c.Dynamic.Has("moe"), `dynamic.kind with moe: only experts have groups`, "model.grain dynamic.kind"},
		{c.Model.Grain == "expert" && c.Dynamic.Has("moe") && c.Moe.Experts%c.Moe.Groups != 0, "moe.groups to divide moe.experts", "moe.groups moe.experts"},
		{c.Spread() && c.Model.Grain == "expert", `parallel.experts = "local" beside model.grain = "expert"`, "parallel.experts model.grain"},
		{c.Spread() && c.Moe.Experts%c.Parallel.Replicas != 0, "parallel.replicas to divide moe.experts, which are spread over them", "parallel.replicas moe.experts parallel.experts"},
		{c.Spread() && c.Dynamic.Has("prune"), `parallel.experts = "local" beside prune: replicas have to prune the same matrices`, "parallel.experts dynamic.kind"},
		{c.Spread() && byPlasticity, `parallel.experts = "local" beside freeze.when = "plasticity": a layer's reference answers without the experts of other replicas`, "parallel.experts dynamic.kind freeze.when"},
		{c.Dynamic.clashes(), "attention without exit and mod: its buckets are of whole sequences", "dynamic.kind"},
		{c.Dynamic.Has("mod") && c.Model.Grain != "block" && c.Balance.Kind == "layout",
			`model.grain = "block": the notation of a layout has one length for all blocks, and routed ones stay whole`, "balance.kind model.grain dynamic.kind"},
		{c.Dynamic.Has("exit") && c.Exit.check(c.Model.Blocks) != "", c.Exit.check(c.Model.Blocks), "exit.after exit.from model.blocks"},
		{c.Dynamic.Has("exit") && c.Dynamic.Has("mod") && c.Exit.Confidence == "saturation",
			"classifier or softmax beside mod: routed blocks do not keep what entered them", "exit.confidence dynamic.kind"},
		{c.Dynamic.Has("exit") && c.Dynamic.Has("mod") && c.Exit.Propagate,
			"exit.propagate = false beside mod: routed blocks do not tell tokens that have left from others", "exit.propagate dynamic.kind"},
		{c.Dynamic.Has("exit") && c.Exit.Share > 0 && c.Exit.Until < c.Exit.Start, "exit.until to be at least exit.start", "exit.until exit.start"},
		{byPlasticity && c.Freeze.Reference%c.Freeze.Every != 0, "freeze.reference to be a multiple of freeze.every", "freeze.reference freeze.every"},
		{byPlasticity && c.Freeze.Thaw > 0 && c.Freeze.Thaw <= 1, "0 (never) or a factor above 1", "freeze.thaw"},
		{byPlasticity && c.Model.Blocks < 2, "at least 2 blocks: the last never freezes", "model.blocks dynamic.kind"},
		{byPlasticity && c.Freeze.Earliest() >= c.Train.Steps, fmt.Sprintf("a run of more than %d steps: no layer freezes before freeze.window averages of freeze.average evaluations", c.Freeze.Earliest()),
			"freeze.window freeze.average freeze.every freeze.start train.steps"},
		{c.Dynamic.Has("freeze") && !byPlasticity && c.Freeze.Layers > layers, fmt.Sprintf("freeze.layers to be at most the %d layers", layers), "freeze.layers"},
		{virtual && c.Device.Threads > 1, "device.threads = 1 under a virtual clock, which counts one thread", "device.threads run.clock"},
		{virtual && gpu, "another clock: a virtual one counts the time of CPU threads", "run.clock device.kind"},
		{gpu && c.Comm.Carrier == "nccl" && c.Device.Share, `comm.carrier = "auto" or "host" where ranks may share a GPU: NCCL refuses those`,
			"comm.carrier device.share"},
		{regex != nil, fmt.Sprintf("a regular expression (%v)", regex), "balance.regex"},
	} {
		if combination.wrong {
			refuse(combination.wanted, strings.Fields(combination.names)...)
		}
	}
	return problems
}

// bytes returns about how much memory all layers with their optimizer state, and
// the activations of all microbatches of a replica, would take.
func (c Config) bytes() float64 {
	m, p := c.Model, c.Parallel
	blocks, hidden, vocab := float64(m.Blocks), float64(m.Hidden), float64(m.Vocab)
	tokens := float64(m.Sequence) * float64(p.MicrobatchSize) * float64(p.Microbatches)
	inside := (16*hidden + 4*float64(c.assigned()*c.Inside())) * blocks // values that a token leaves in the blocks, about
	return 16*(c.matrices()*blocks+hidden*(2*vocab+float64(m.Sequence))) + 4*tokens*(inside+4*vocab)
}

// Layers returns the length of the chain: embedding, blocks (several layers each where the
// grain is finer, but for those that route tokens), exits, slices of the head.
func (c Config) Layers() int {
	blocks := c.PerBlock() * c.Model.Blocks
	if c.Dynamic.Has("mod") {
		blocks -= (c.PerBlock() - 1) * (c.Model.Blocks / 2)
	}
	if c.Dynamic.Has("exit") {
		blocks += c.Exit.layers(c.Model.Blocks, c.PerBlock())
	}
	return 1 + blocks + c.Model.HeadShards
}

// PerBlock returns how many layers of the chain a block is.
func (c Config) PerBlock() int {
	switch c.Model.Grain {
	case "half":
		return 2
	case "expert":
		return 1 + c.Moe.Groups
	}
	return 1
}

// Virtual returns how many chunks of the chain every stage holds, V; of a
// schedule that comes from a file only the file can tell, and Virtual says 1.
func (s Schedule) Virtual() int {
	switch s.Kind {
	case "interleaved", "zb-interleaved":
		return s.Chunks
	case "zb-v":
		return 2
	}
	return 1
}
