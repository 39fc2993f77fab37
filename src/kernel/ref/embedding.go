package ref

// embeddingForward sets out (n, c) for n tokens. Each row of out is the sum of the token's
// row of wte and its position's row of wpe. Both tables have rows of c:
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

// rotary rotates heads of hs channels in place (Su et al. 2021). It rotates the first
// `heads` heads of every row of qkv, rows of width, by the angles of the row's position.
// With cos and sin those of channel x < hs/2,
//
//	(q[x], q[x+hs/2]) = (q[x]·cos - q[x+hs/2]·sin, q[x+hs/2]·cos + q[x]·sin)
//
// inverse rotates by the opposite angles. A row of table is hs/2 cosines, then hs/2
// sines. It panics if a position is outside the table.
func rotary[F Float](qkv []F, positions []int32, table []F, heads, width, hs int, inverse bool) {
	half := hs / 2
	for i, position := range positions {
		turns := table[int(position)*hs:][:hs]
		for head := range heads {
			q := qkv[i*width+head*hs:][:hs]
			for x := range half {
				a, b, cos, sin := q[x], q[x+half], turns[x], turns[x+half]
				if inverse {
					sin = -sin
				}
				q[x], q[x+half] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
}
