// Package checkpoint moves a model's weights between files and layers. What
// comes in are files of other programs (safetensors with Hugging Face's
// names, llm.c's model file) and dynmo's own weights file; what goes out are
// the same formats, and the parameters of model layers.
//
// Weights joins the two sides: a configuration and, by dynmo's names, values
// as little-endian float32 with matrices (out, in). Opening a file checks all
// its sizes, names and shapes against the configuration and the file's length
// before memory is taken for any value; only then are tensors read, one at a
// time.
package checkpoint
