// Package data turns text or token files into batches, and text or dumps of
// wikis into token files. In come the corpus, as bytes or as ids, and (seed,
// step, global microbatch); out go the tokens and targets of that microbatch,
// the same on every rank and under every layout.
package data
