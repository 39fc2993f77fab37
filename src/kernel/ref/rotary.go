package ref

// Rotary rotates in place the first `heads` heads of hs channels of every row of qkv,
// rows of width, by the angles of its position (Su et al. 2021). With cos and sin those
// of channel x < hs/2,
//
//	(q[x], q[x+hs/2]) = (q[x]·cos - q[x+hs/2]·sin, q[x+hs/2]·cos + q[x]·sin)
//
// inverse rotates by the opposite angles. A row of table is hs/2 cosines, then hs/2
// sines. It panics if a position is outside the table.
func Rotary[F Float](qkv []F, positions []int32, table []F, heads, width, hs int, inverse bool) {
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
