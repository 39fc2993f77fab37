// Package data turns a file or directory of text into batches. In come the
// corpus, as bytes, and (seed, step, global microbatch); out go the tokens and
// targets of that microbatch, the same on every rank and under every layout.
package data
