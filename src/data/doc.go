// Package data turns text or token files into batches.
// The input is the corpus, as bytes or as ids, and (seed, step, global microbatch). The output is
// the tokens and targets of that microbatch, the same on every rank and in every layout.
// The package also names the files of tokenizers, which lie beside data, weights and runs.
package data
