package ref

// embeddingForward sets out (n, c), for n tokens, to the sum of a token's row of
// wte and its position's row of wpe, both of rows of c:
//
//	out[i] = wte[tokens[i]] + wpe[positions[i]]
//
// It panics if a token or a position is outside its table.
func embeddingForward[F Float](out []F, tokens, positions []int32, wte, wpe []F, c int) {
	for i := range tokens {
		token := wte[int(tokens[i])*c:][:c]
		position := wpe[int(positions[i])*c:][:c]
		for j := range c {
			out[i*c+j] = token[j] + position[j]
		}
	}
}

// embeddingBackward adds dout (n, c) to the rows of dwte and dwpe that
// EmbeddingForward read, in ascending order of i. An empty dwpe is left out.
func embeddingBackward[F Float](dwte, dwpe, dout []F, tokens, positions []int32, c int) {
	for i := range tokens {
		row := dout[i*c:][:c]
		axpy(dwte[int(tokens[i])*c:][:c], 1, row)
		if len(dwpe) > 0 {
			axpy(dwpe[int(positions[i])*c:][:c], 1, row)
		}
	}
}
