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
	_, regex := regexp.Compile(c.Balance.Regex)
	virtual, gpu := c.Run.Clock == "virtual", c.Device.Kind == "cuda"
	for _, combination := range []struct {
		wrong  bool
		wanted string
		names  string
	}{
		{c.Model.Hidden%c.Model.Heads != 0, "model.hidden to be a multiple of model.heads", "model.hidden model.heads"},
		{c.Model.HeadShards > c.Model.Vocab, "model.head_shards to be at most model.vocab", "model.head_shards model.vocab"},
		{v*c.Parallel.Stages > layers, fmt.Sprintf("at most %s of the %d layers (embedding, blocks in model.grain, model.head_shards)", most, layers),
			"parallel.stages model.blocks model.grain model.head_shards"},
		{c.Parallel.Stages*c.Parallel.Replicas > mostRanks, fmt.Sprintf("at most %d ranks", mostRanks), "parallel.stages parallel.replicas"},
		{v*c.Parallel.Stages*c.Parallel.Microbatches > mostPasses, fmt.Sprintf("at most %d microbatches of all chunks of all stages", mostPasses),
			"parallel.stages parallel.microbatches schedule.kind"},
		{c.bytes() > mostBytes, "weights and activations of less than 2^58 bytes", "model.blocks model.hidden model.vocab model.sequence " +
			"parallel.microbatch_size parallel.microbatches"},
		{c.Comm.BandwidthBytes > 0 && c.Comm.BandwidthBytes < 1000, "0 (infinite) or at least 1000 bytes/second", "comm.bandwidth_bytes"},
		{v > 1 && c.Balance.Kind == "diffusion", "a schedule with one chunk on a stage: diffusion moves layers between neighbours", "balance.kind schedule.kind"},
		{c.Schedule.Kind == "file" && c.Schedule.File == "", "a file", "schedule.file schedule.kind"},
		{c.Balance.Kind == "layout" && c.Balance.Layout == "", "a layout", "balance.layout balance.kind"},
		{c.Optimizer.MinLR > c.Optimizer.LR, "optimizer.min_lr to be at most optimizer.lr", "optimizer.min_lr optimizer.lr"},
		{c.Prune.Final < c.Prune.Initial, "prune.final to be at least prune.initial", "prune.final prune.initial"},
		{c.Simulate.Densest < c.Simulate.Sparsest, "simulate.density_most to be at least simulate.density_least", "simulate.density_most simulate.density_least"},
		{c.Dynamic.Has("freeze") && c.Freeze.Layers > layers, fmt.Sprintf("freeze.layers to be at most the %d layers", layers), "freeze.layers"},
		{c.Dynamic.Has("exit") && c.Exit.check(c.Model.Blocks) != "", c.Exit.check(c.Model.Blocks), "exit.after exit.from model.blocks"},
		{c.Dynamic.Has("exit") && c.Exit.Propagate, "exit.propagate = false: nothing computes the keys and values alone of tokens that have left", "exit.propagate"},
		{c.Dynamic.Has("exit") && c.Exit.Share > 0 && c.Exit.Until < c.Exit.Start, "exit.until to be at least exit.start", "exit.until exit.start"},
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
	return 16*hidden*(12*hidden*blocks+2*vocab+float64(m.Sequence)) + 4*tokens*(32*hidden*blocks+4*vocab)
}

// Layers returns the length of the chain: embedding, blocks (two layers each
// where the grain is half a block), exits, slices of the head.
func (c Config) Layers() int {
	layers := 1 + c.Model.PerBlock()*c.Model.Blocks + c.Model.HeadShards
	if c.Dynamic.Has("exit") {
		layers += c.Exit.layers(c.Model)
	}
	return layers
}

// PerBlock returns how many layers of the chain a block is.
func (m Model) PerBlock() int {
	if m.Grain == "half" {
		return 2
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
