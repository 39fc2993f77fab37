// Package tokenizer turns text into ids and back, and texts into token files. The input is text, and a
// tokenizer: GPT-2's, Hugging Face's tokenizer.json, vocab.json with merges.txt, a sentencepiece model, or
// bytes. The output is the ids that the tokenizer's own library gives, or an error that names the file
// and what is not supported. Training needs no tokenizer.
package tokenizer
