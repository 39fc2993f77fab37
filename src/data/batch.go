package data

import (
	"cmp"
	"math/rand/v2"
	"runtime/debug"

	"dynmo/src/random"
)

// stream separates the offsets from other random numbers that are drawn from a run's seed.
const stream = 0x64617461 // "data"

// Batches draws microbatches of one shape from a corpus. Only one goroutine may use it.
type Batches struct {
	corpus          *Corpus
	sequence        int
	joined          int // number of microbatches that are joined into one
	tokens, targets []int32
	pcg             rand.PCG
	random          *rand.Rand // on pcg
	err             error      // see Err
	bounds          []int      // by file, with weights: the number of tokens up to its end
}

// Batches returns the microbatches of `size` sequences. It panics if the corpus is shorter than a
// sequence and its last target.
func (c *Corpus) Batches(size, sequence int) *Batches { return c.Joined(1, size, sequence) }

// Joined returns Batches that join `joined` microbatches of `size` sequences into one: microbatch m
// has the sequences of microbatches joined·m to joined·(m+1)-1.
func (c *Corpus) Joined(joined, size, sequence int) *Batches {
	if c.tokens <= sequence {
		panic("data: the corpus is shorter than a sequence and the token after it")
	}
	tokens := joined * size * sequence
	b := &Batches{corpus: c, sequence: sequence, joined: joined, tokens: make([]int32, tokens), targets: make([]int32, tokens)}
	b.random = rand.New(&b.pcg)
	if c.weights != nil {
		b.bounds = c.bounds()
	}
	return b
}

// Err returns an error if another program has changed the token file of the corpus. From then on Read
// and Even return zeros.
func (b *Batches) Err() error { return b.err }

// check ends a Read or Even: it sets the error. A file that was shortened has memory that cannot be
// read, for which Go panics. panics is the setting to restore.
func (b *Batches) check(panics bool) {
	debug.SetPanicOnFault(panics)
	if b.err = cmp.Or(b.err, b.corpus.changed()); b.err != nil {
		_ = recover()
		clear(b.tokens)
		clear(b.targets)
	}
}

// Read returns the tokens (size·sequence) of a microbatch and their targets: targets[i] is the
// token that follows tokens[i] in the corpus. The offset of every sequence is drawn uniformly from
// all offsets with room for the sequence and its last target. With weights of files the file is drawn
// first, and the offset from those of the file. Both results are valid until the next Read.
//
// The results are a pure function of the corpus, the shape and the arguments. microbatch is the
// global index replica·M + m, so a microbatch has the same tokens on every rank.
func (b *Batches) Read(seed uint64, step, microbatch int) (tokens, targets []int32) {
	tokens, targets = b.tokens, b.targets // also after a fault
	defer b.check(debug.SetPanicOnFault(true))
	each := len(b.tokens) / b.joined
	for i := 0; i < len(b.tokens); i += b.sequence {
		if i%each == 0 {
			random.Seed(&b.pcg, seed, stream, uint64(step), uint64(microbatch*b.joined+i/each))
		}
		b.take(i, b.draw())
	}
	return b.tokens, b.targets
}

// draw returns the offset of a sequence. With weights it first draws the file.
func (b *Batches) draw() int {
	if b.bounds == nil {
		return b.random.IntN(b.starts())
	}
	x, file, begin := b.random.Float64(), 0, 0
	for ; file < len(b.bounds)-1 && x >= b.corpus.weights[file]; file++ {
		x -= b.corpus.weights[file]
		begin = b.bounds[file]
	}
	return begin + b.random.IntN(b.bounds[file]-begin-b.sequence)
}

// Even returns one of `of` microbatches whose sequences are spread evenly over the corpus, from its
// first token to its last. If they exactly fill the corpus, each sequence follows the one before.
// Both results are valid until the next Read or Even.
func (b *Batches) Even(microbatch, of int) (tokens, targets []int32) {
	tokens, targets = b.tokens, b.targets // also after a fault
	defer b.check(debug.SetPanicOnFault(true))
	size := len(b.tokens) / b.sequence
	last := max(1, of*size-1)
	for k := range size {
		b.take(k*b.sequence, (microbatch*size+k)*(b.starts()-1)/last)
	}
	return b.tokens, b.targets
}

// starts returns the number of offsets with room for a sequence and its last target.
func (b *Batches) starts() int { return b.corpus.tokens - b.sequence }

// take fills the sequence at token i of the microbatch with the sequence at an offset of the
// corpus.
func (b *Batches) take(i, start int) {
	b.corpus.copyTo(b.tokens[i:i+b.sequence], start)
	b.corpus.copyTo(b.targets[i:i+b.sequence], start+1)
}
