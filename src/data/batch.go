package data

import "dynmo/src/random"

// stream keeps the offsets apart from whatever else is drawn from a run's seed.
const stream = 0x64617461 // "data"

// Batch returns the tokens (size·sequence) of a microbatch and their targets:
// targets[i] is the token that follows tokens[i] in the corpus. Every sequence
// starts at an offset drawn uniformly from all that leave room for it and its
// last target.
//
// It is a pure function of the corpus and its arguments, microbatch being the
// global index replica·M + m; so a microbatch is the same on whichever rank it
// runs. It panics if sequence tokens and a target do not fit into the corpus.
func (c *Corpus) Batch(seed uint64, step, microbatch, size, sequence int) (tokens, targets []int32) {
	starts := c.ids.count() - sequence
	if starts < 1 {
		panic("data: the corpus is shorter than a sequence and the token after it")
	}
	tokens = make([]int32, size*sequence)
	targets = make([]int32, size*sequence)
	rnd := random.Keyed(seed, stream, uint64(step), uint64(microbatch))
	for i := range size {
		start := rnd.IntN(starts)
		c.ids.copyTo(tokens[i*sequence:(i+1)*sequence], start)
		c.ids.copyTo(targets[i*sequence:(i+1)*sequence], start+1)
	}
	return tokens, targets
}
