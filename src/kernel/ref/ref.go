// Package ref is the definition of every kernel call in plain Go, for float32
// and float64: operands come in as slices, results go out in slices, nothing
// else is touched. Other backends are compared with it, gradients are checked
// on it, and it trains small models where there is no C compiler.
//
// Elements are stored as F. Products are summed in F in ascending order of the
// summed index, into the destination where a function adds to it. Statistics
// of a row (mean, variance, softmax denominator), losses and the AdamW update
// are computed in float64 and rounded once. One thread, so equal operands give
// equal bits with one binary on one instruction set.
package ref

// Float is an element type that the kernels compute in.
type Float interface{ ~float32 | ~float64 }

// matvec sets out (len(out)) to A·x, where row j of A is
// rows[j·stride : j·stride+len(x)]. Four rows go at a time so that their sums
// do not wait for each other.
func matvec[F Float](out, x, rows []F, stride int) {
	c := len(x)
	j := 0
	for ; j+4 <= len(out); j += 4 {
		r0 := rows[(j+0)*stride:][:c]
		r1 := rows[(j+1)*stride:][:c]
		r2 := rows[(j+2)*stride:][:c]
		r3 := rows[(j+3)*stride:][:c]
		var s0, s1, s2, s3 F
		for i, xi := range x {
			s0 += xi * r0[i]
			s1 += xi * r1[i]
			s2 += xi * r2[i]
			s3 += xi * r3[i]
		}
		out[j], out[j+1], out[j+2], out[j+3] = s0, s1, s2, s3
	}
	for ; j < len(out); j++ {
		out[j] = dot(x, rows[j*stride:][:c])
	}
}

// dot returns Σ x·y; both have the same length.
func dot[F Float](x, y []F) F {
	var s F
	for i, yi := range y {
		s += x[i] * yi
	}
	return s
}

// vecmat adds x·A to out, where row j of A, for j < len(x), is
// rows[j·stride : j·stride+len(out)]. Four rows go at a time so that out is
// read and written a quarter as often.
func vecmat[F Float](out, x, rows []F, stride int) {
	c := len(out)
	j := 0
	for ; j+4 <= len(x); j += 4 {
		x0, x1, x2, x3 := x[j], x[j+1], x[j+2], x[j+3]
		r0 := rows[(j+0)*stride:][:c]
		r1 := rows[(j+1)*stride:][:c]
		r2 := rows[(j+2)*stride:][:c]
		r3 := rows[(j+3)*stride:][:c]
		for i, s := range out {
			s += x0 * r0[i]
			s += x1 * r1[i]
			s += x2 * r2[i]
			s += x3 * r3[i]
			out[i] = s
		}
	}
	for ; j < len(x); j++ {
		axpy(out, x[j], rows[j*stride:][:c])
	}
}

// axpy adds a·x to y; both have the same length.
func axpy[F Float](y []F, a F, x []F) {
	for i, xi := range x {
		y[i] += a * xi
	}
}
