package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	// mostRanks bounds the number of ranks: 700 times the largest run of the paper.
	mostRanks = 1 << 19
	// mostPasses bounds the size of a schedule, so that making it takes seconds. It is 60 times the
	// size in the largest run of the paper.
	mostPasses = 1 << 22
	// mostBytes keeps every sum of bytes far from the largest integer.
	mostBytes = 1 << 58
)

// TokensOfMicrobatch returns the number of tokens in a microbatch.
func (c Config) TokensOfMicrobatch() int { return c.Parallel.MicrobatchSize * c.Model.Sequence }

// Validate returns an error that joins every setting outside its range and every invalid
// combination of settings.
func (c Config) Validate() error { return errors.Join(c.problems(nil)...) }

// problems returns the errors that Validate joins. origin has the places where settings were set,
// by name; other settings are defaults.
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
			refuse(s.wanted()+s.nearest(), s.name())
		}
	}
	if problems != nil {
		return problems // combinations of invalid values have no meaning
	}
	layers, v := c.Layers(), c.Schedule.Virtual()
	most := "a stage for each"
	if v > 1 {
		most = fmt.Sprintf("a chunk (%d on a stage) for each", v)
	}
	fits := v*c.Parallel.Stages <= layers // else one error is enough
	_, regex := regexp.Compile(c.Balance.Regex)
	rule := func(wrong bool, wanted, names string) {
		if wrong {
			refuse(wanted, strings.Fields(names)...)
		}
	}
	virtual, gpu := c.Run.Clock == "virtual", c.Device.Kind == "cuda"
	rule(c.Model.Hidden%c.Model.Heads != 0, "model.hidden to be a multiple of model.heads", "model.hidden model.heads")
	if f := c.family(); f.Check != nil {
		f.Check(c, rule)
	}
	rule(c.Model.HeadShards > c.Model.Vocab, "model.head_shards to be at most model.vocab", "model.head_shards model.vocab")
	rule(!fits, fmt.Sprintf("at most %s of the %d layers (embedding, blocks in model.grain, model.head_shards)", most, layers),
		"parallel.stages model.blocks model.grain model.head_shards")
	rule(fits && c.Parallel.Stages*c.Parallel.Replicas > mostRanks, fmt.Sprintf("at most %d ranks", mostRanks), "parallel.stages parallel.replicas")
	rule(fits && v*c.Parallel.Stages*c.Parallel.Microbatches > mostPasses, fmt.Sprintf("at most %d microbatches of all chunks of all stages", mostPasses),
		"parallel.stages parallel.microbatches schedule.kind")
	rule(c.bytes() > mostBytes, "weights and activations of less than 2^58 bytes", "model.blocks model.hidden model.vocab model.sequence "+
		"parallel.microbatch_size parallel.microbatches")
	rule(c.Comm.BandwidthBytes > 0 && c.Comm.BandwidthBytes < 1000, "0 (infinite) or at least 1000 bytes/second", "comm.bandwidth_bytes")
	rule(c.Comm.SumGroup > c.Parallel.Replicas, "comm.sum_group to be at most parallel.replicas", "comm.sum_group parallel.replicas")
	rule(v > 1 && c.Balance.Kind == "diffusion", "a schedule with one chunk on a stage: diffusion moves layers between neighbours", "balance.kind schedule.kind")
	rule(c.Model.Recompute == "plan" && c.Balance.MemoryLimitBytes == 0, "a limit: layers compute twice where memory wants it", "model.recompute balance.memory_limit_bytes")
	rule(c.Model.Recompute == "plan" && c.Balance.Kind == "diffusion", "another balancer: diffusion does not choose layers that compute twice", "model.recompute balance.kind")
	rule(c.Schedule.Kind == "file" && c.Schedule.File == "", "a file", "schedule.file schedule.kind")
	rule(c.Balance.Kind == "layout" && c.Balance.Layout == "", "a layout", "balance.layout balance.kind")
	rule(c.Repack.Kind == "first-fit" && c.Balance.MemoryLimitBytes == 0 && c.Repack.Stages == 1,
		"a limit or more than one stage: first-fit merges stages as long as their memory fits", "balance.memory_limit_bytes repack.stages repack.kind")
	rule(c.Optimizer.MinLR > c.Optimizer.LR, "optimizer.min_lr to be at most optimizer.lr", "optimizer.min_lr optimizer.lr")
	rule(virtual && c.Device.Threads > 1, "device.threads = 1 under a virtual clock, which counts one thread", "device.threads run.clock")
	rule(virtual && gpu, "another clock: a virtual one counts the time of CPU threads", "run.clock device.kind")
	rule(gpu && c.Comm.Transport == "nccl" && c.Device.Share, `comm.transport = "auto" or "host" where ranks may share a GPU: NCCL refuses those`,
		"comm.transport device.share")
	rule(c.Dynamic.Replay != "" && c.Dynamic.Kind == "none", "a kind whose load is forced", "dynamic.kind dynamic.replay")
	rule(c.Dynamic.Replay != "" && c.Data.Validation != "", "no validation beside dynamic.replay: a run with forced loads reports no loss", "data.validation dynamic.replay")
	rule(regex != nil, fmt.Sprintf("a regular expression (%v)", regex), "balance.regex")
	for _, k := range kinds {
		if k.Check != nil {
			k.Check(c, rule)
		}
	}
	return problems
}

// bytes returns the approximate memory of all layers with their optimizer state, and of the
// activations of all microbatches of a replica.
func (c Config) bytes() float64 {
	m, p := c.Model, c.Parallel
	blocks, hidden, vocab := float64(m.Blocks), float64(m.Hidden), float64(m.Vocab)
	tokens := float64(m.Sequence) * float64(p.MicrobatchSize) * float64(p.Microbatches)
	shape := c.shape()
	inside := (16*hidden + 4*float64(shape.Taken*shape.Inside)) * blocks // approximate number of values that a token leaves in the blocks
	attention, mlps := c.matrices(shape.MLPs)
	return 16*((attention+mlps)*blocks+hidden*(2*vocab+float64(m.Sequence))) + 4*tokens*(inside+4*vocab)
}

// Layers returns the length of the chain: embedding, blocks, added layers of kinds, and slices of
// the head. With a finer grain a block is several layers, unless it stays whole.
func (c Config) Layers() int {
	s := c.shape()
	return 1 + s.PerBlock*c.Model.Blocks - (s.PerBlock-1)*s.Whole + s.Added + c.Model.HeadShards
}

// PerBlock returns the number of layers of a block.
func (c Config) PerBlock() int { return c.shape().PerBlock }

// Virtual returns the number of chunks of every stage, V. If the schedule comes from a file, only
// the file has that number, and Virtual returns 1.
func (s Schedule) Virtual() int {
	switch s.Kind {
	case "interleaved", "zb-interleaved":
		return s.Chunks
	case "zb-v":
		return 2
	}
	return 1
}
