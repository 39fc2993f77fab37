// Package dynamism measures what balancing is worth in real runs. What comes in is the
// kinds of dynamism and a function that trains; what goes out is, for each kind at two
// strengths, the steps of a dense run and of the same dynamic work on cuts that never move
// and under each balancer. All runs of a case take their steps in turn, so that whatever
// slows the machine slows all of them.
package dynamism

import (
	"fmt"
	"slices"

	"dynmo/src/config"
)

const (
	// stages, blocks and the half grain are those that the figures to reach are meant for;
	// microbatches are four times the stages, as in the paper's appendix A.
	stages, blocks, microbatches = 8, 24, 4 * stages
	// hidden, sequence and sequences (of a microbatch) are what lets a case take a few
	// minutes on two cores.
	hidden, heads, sequence, sequences = 96, 3, 64, 1
	// change is the step before which the model changes, where it does so once: steps
	// enough before it to measure the dense costs.
	change = 4
	// settled is the part of the steps, at the end of a run, whose medians are compared.
	settled = 3

	// LeastSteps is the fewest steps of a run, of each phase some; UsualSteps those of the
	// results that are kept.
	LeastSteps, UsualSteps = 3 * change, 4 * change
)

// Case is a kind of dynamism at one strength.
type Case struct {
	Kind     string
	Short    string   // its strength, in a word
	Strength string   // in words
	Every    bool     // whether the model changes in every iteration
	Times    int      // how many times more steps its runs have; 0: as many
	Interval int      // steps between the changes after which the paper balances, of others
	Batch    int      // sequences of a microbatch; 0: sequences
	Replicas int      // over which experts are spread; 0: one
	Paper    float64  // the paper's speedup, 0 if it has none
	Over     string   // what that is over
	Sets     []string // settings, as --set has them
	Model    []string // of them: those that the dense model has too
}

// Name names the case in one word.
func (c Case) Name() string { return c.Kind + "-" + c.Short }

// Cases returns all cases. The paper's speedups are those of its figure 3 and abstract,
// of 24 to 48 blocks on 24 stages.
func Cases() []Case {
	var list []Case
	add := func(c Case, short, strength string, sets ...string) {
		c.Short, c.Strength, c.Sets = short, strength, sets
		list = append(list, c)
	}
	// Deeper blocks have smaller weights, so that global pruning empties them first. The
	// sparsities are the second and the third of the paper's section 4.1.
	prune := Case{Kind: "prune", Interval: 1000, Paper: 3.18, Over: "the best static cuts", Model: []string{"model.init=depth-scaled"}}
	for _, sparsity := range []string{"0.79", "0.9"} {
		add(prune, sparsity, fmt.Sprintf("from step %d on %s of the weights are gone", change, sparsity), fmt.Sprintf("prune.every=%d", change), "prune.start=0", "prune.times=1", "prune.final="+sparsity)
	}
	freeze := Case{Kind: "freeze", Interval: 50, Paper: 2.23, Over: "Egeria"}
	for _, frozen := range []int{blocks / 3, 2 * blocks / 3} { // behind the embedding, two layers each
		add(freeze, fmt.Sprintf("%d-blocks", frozen), fmt.Sprintf("from step %d on the first %d blocks are frozen", change, frozen), "freeze.when=step", fmt.Sprintf("freeze.step=%d", change), fmt.Sprintf("freeze.layers=%d", 1+2*frozen))
	}
	// Sequences are as long as attention needs to count.
	attention := Case{Kind: "attention", Every: true, Paper: 4.02, Over: "dense attention", Model: []string{
		"model.hidden=64", "model.heads=2", "model.sequence=512", "parallel.microbatches=16",
	}}
	for _, buckets := range []int{4, 16} {
		add(attention, fmt.Sprintf("%d-buckets", buckets), fmt.Sprintf("%d buckets, sequences of 512", buckets), fmt.Sprintf("attention.buckets=%d", buckets))
	}
	// Thresholds find their places while the classifiers learn: slowly, so that as many
	// tokens leave as wanted within the few steps of a run. Microbatches have tokens enough
	// that the shares which leave are not all chance.
	exit := Case{Kind: "exit", Times: 3, Interval: 100, Batch: 4, Paper: 4.52, Over: "no exit", Model: []string{
		"model.hidden=48", "optimizer.lr=1e-4", "optimizer.min_lr=1e-5",
	}}
	for _, share := range []string{"0.5", "0.8"} {
		add(exit, share, share+" of the tokens are to leave behind blocks 6, 9, ..., 21",
			"exit.after=6,9,12,15,18,21", "exit.start=0", "exit.until=1", "exit.share="+share)
	}
	// Experts of untrained routers lie over two replicas, and take as many multiplications as
	// the dense model's MLP.
	moe := Case{Kind: "moe", Every: true, Batch: 2, Replicas: 2, Over: "the best static cuts"}
	for _, m := range []struct {
		name                   string
		experts, top, channels int
		paper                  float64
	}{{"mixtral", 8, 2, 112, 1.21}, {"llama-moe", 16, 4, 32, 1.23}} {
		moe.Paper = m.paper
		moe.Model = []string{"model.family=llama", "model.hidden=48", "parallel.replicas=2", "parallel.microbatches=16", fmt.Sprintf("model.intermediate=%d", m.top*m.channels)}
		add(moe, m.name, fmt.Sprintf("%d experts, top %d, over 2 replicas, untrained routers", m.experts, m.top),
			"parallel.experts=spread", fmt.Sprintf("moe.experts=%d", m.experts), fmt.Sprintf("moe.top=%d", m.top), fmt.Sprintf("moe.intermediate=%d", m.channels))
	}
	mod := Case{Kind: "mod", Every: true, Paper: 1.17, Over: "the best static cuts"}
	for _, capacity := range []string{"0.5", "0.125"} {
		add(mod, capacity, "every second block takes "+capacity+" of the tokens", "mod.capacity="+capacity)
	}
	return list
}

// Kinds returns the names of the kinds, in their order.
func Kinds() []string {
	var list []string
	for _, c := range Cases() {
		if !slices.Contains(list, c.Kind) {
			list = append(list, c.Kind)
		}
	}
	return list
}

// batch returns how many sequences a microbatch has.
func (c Case) batch() int { return max(c.Batch, sequences) }

// steps returns how many steps a run of the case has, where others have so many.
func (c Case) steps(others int) int { return others * max(1, c.Times) }

// settings returns those of a run of some steps on some balancer, with the dynamism or
// without.
func (c Case) settings(steps int, balance config.Balance, dynamic bool) (config.Config, error) {
	every := "2"
	if c.Every {
		every = "1"
	}
	sets := append([]string{
		"run.name=" + c.Kind, "run.clock=virtual", "data.limit_bytes=4000000", "train.hash=true", "checkpoint.every=never",
		"comm.deadline_seconds=3600", // a run waits for the others' turns
		"model.grain=half", fmt.Sprintf("model.blocks=%d", blocks), fmt.Sprintf("model.hidden=%d", hidden),
		fmt.Sprintf("model.heads=%d", heads), fmt.Sprintf("model.sequence=%d", sequence),
		fmt.Sprintf("parallel.stages=%d", stages), fmt.Sprintf("parallel.microbatches=%d", microbatches),
		fmt.Sprintf("parallel.microbatch_size=%d", c.batch()), fmt.Sprintf("train.steps=%d", c.steps(steps)),
		"balance.kind=" + balance.Kind, "balance.by=" + balance.By, "balance.every=" + every,
	}, c.Model...)
	if dynamic {
		sets = append(append(sets, "dynamic.kind="+c.Kind), c.Sets...)
	}
	return config.Load("", sets)
}
