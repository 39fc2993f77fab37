package data

import (
	"math/rand/v2"

	"dynmo/src/random"
)

// stream keeps the offsets apart from whatever else is drawn from a run's seed.
const stream = 0x64617461 // "data"

// Batches draws microbatches of one shape from a corpus. One goroutine uses it.
type Batches struct {
	corpus          *Corpus
	sequence        int
	joined          int // microbatches that are drawn for one
	tokens, targets []int32
	pcg             rand.PCG
	random          *rand.Rand // on pcg
}

// Batches returns microbatches of size sequences. It panics if sequence tokens
// and a target do not fit into the corpus.
func (c *Corpus) Batches(size, sequence int) *Batches { return c.Joined(1, size, sequence) }

// Joined returns Batches that join microbatches of size sequences, joined of them each: microbatch
// m has the sequences of microbatches joined·m to joined·(m+1)-1.
func (c *Corpus) Joined(joined, size, sequence int) *Batches {
	if c.tokens <= sequence {
		panic("data: the corpus is shorter than a sequence and the token after it")
	}
	tokens := joined * size * sequence
	b := &Batches{corpus: c, sequence: sequence, joined: joined, tokens: make([]int32, tokens), targets: make([]int32, tokens)}
	b.random = rand.New(&b.pcg)
	return b
}

// Read returns the tokens (size·sequence) of a microbatch and their targets:
// targets[i] is the token that follows tokens[i] in the corpus. Every sequence
// starts at an offset drawn uniformly from all that leave room for it and its
// last target. Both are valid until the next Read.
//
// They are a pure function of the corpus, the shape and the arguments,
// microbatch being the global index replica·M + m; so a microbatch is the same
// on whichever rank it runs.
func (b *Batches) Read(seed uint64, step, microbatch int) (tokens, targets []int32) {
	each := len(b.tokens) / b.joined
	for i := 0; i < len(b.tokens); i += b.sequence {
		if i%each == 0 {
			random.Seed(&b.pcg, seed, stream, uint64(step), uint64(microbatch*b.joined+i/each))
		}
		b.take(i, b.random.IntN(b.starts()))
	}
	return b.tokens, b.targets
}

// Even returns one of `of` microbatches whose sequences are spread evenly over the corpus, from its
// first token to its last. If they just fill the corpus they follow one another. Both results are
// valid until the next Read or Even.
func (b *Batches) Even(microbatch, of int) (tokens, targets []int32) {
	size := len(b.tokens) / b.sequence
	last := max(1, of*size-1)
	for k := range size {
		b.take(k*b.sequence, (microbatch*size+k)*(b.starts()-1)/last)
	}
	return b.tokens, b.targets
}

// starts returns the number of offsets that leave room for a sequence and its last
// target.
func (b *Batches) starts() int { return b.corpus.tokens - b.sequence }

// take sets the sequence from token i of the microbatch on to that at an offset.
func (b *Batches) take(i, start int) {
	b.corpus.copyTo(b.tokens[i:i+b.sequence], start)
	b.corpus.copyTo(b.targets[i:i+b.sequence], start+1)
}
