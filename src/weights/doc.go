// Package weights exchanges a model's weights with other programs. The input is files of other
// programs (safetensors with Hugging Face's names) and dynmo's own weights
// file. The output is files of the same formats, and the parameters of model layers.
//
// Weights is the common form: a configuration, and values by dynmo's names as little-endian float32
// with matrices (out, in). Opening a file first checks all its sizes, names and shapes against the
// configuration and the file's length. Memory for values is allocated only after these checks, and
// tensors are read one at a time.
package weights
