package ref

// EmbeddingForward sets out (b·t, c) to the sum of a token's row of wte (v, c)
// and its position's row of wpe (at least t rows of c):
//
//	out[i] = wte[tokens[i]] + wpe[i mod t]
//
// It panics if a token is outside [0, v).
func EmbeddingForward[F Float](out []F, tokens []int32, wte, wpe []F, b, t, c int) {
	for i := range b * t {
		token := wte[int(tokens[i])*c:][:c]
		position := wpe[i%t*c:][:c]
		for j := range c {
			out[i*c+j] = token[j] + position[j]
		}
	}
}

// EmbeddingBackward adds dout (b·t, c) to the rows of dwte (v, c) and dwpe (at
// least t rows of c) that EmbeddingForward read, in ascending order of i.
func EmbeddingBackward[F Float](dwte, dwpe, dout []F, tokens []int32, b, t, c int) {
	for i := range b * t {
		row := dout[i*c:][:c]
		axpy(dwte[int(tokens[i])*c:][:c], 1, row)
		axpy(dwpe[i%t*c:][:c], 1, row)
	}
}
