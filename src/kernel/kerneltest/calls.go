package kerneltest

import "slices"

// tokens are the lengths that calls on rows run at.
var tokens = []int{1, 17, 64, 1023}

// products are the shapes (n, c, o) of matrix products: each dimension 0 or 1,
// odd, a power of two, and above and below what kernels block by.
var products = [][3]int{
	{0, 3, 5}, {1, 1, 1}, {1, 3, 65}, {1, 129, 17}, {3, 17, 129}, {17, 65, 3}, {17, 129, 17},
	{64, 64, 64}, {65, 17, 1}, {129, 3, 129}, {129, 129, 65}, {1023, 65, 17}, {1023, 17, 65},
}

// calls returns every call at every shape.
func calls() []call {
	var all []call
	for _, s := range products {
		n, c, o := s[0], s[1], s[2]
		for _, bias := range []bool{false, true} {
			all = append(all, matmulForward(n, c, o, bias), matmulBackwardWeight(n, c, o, bias))
		}
		all = append(all, matmulBackwardInput(n, c, o))
	}
	for _, s := range [][3]int{{0, 5, 3}, {1, 17, 3}, {17, 65, 33}, {64, 128, 64}, {129, 65, 129}} {
		for _, sparsity := range []float64{0, 0.5, 0.9, 0.99, 1} {
			n, cols, rows := s[0], s[1], s[2]
			w := newPattern(rows, cols, sparsity)
			all = append(all, spmmForward(n, w, false), spmmForward(n, w, true), spmmBackwardInput(n, w),
				sddmm(n, w, false), sddmm(n, w, true))
		}
	}
	for _, n := range tokens {
		for _, c := range []int{1, 3, 17, 64, 129} {
			all = append(all, layerNormForward(n, c), layerNormBackwardInput(n, c), layerNormBackwardWeight(n, c))
		}
		for _, v := range []int{1, 3, 65, 256} {
			all = append(all, crossEntropy(n, v, 0)...)
			all = append(all, crossEntropy(n, v, 5)...)
		}
		all = append(all, attention(1, n, 1, 1)...)
		all = append(all, attention(1, n, 15, 3)...)
		all = append(all, embedding(1, n, 3)...)
		all = append(all, gelu(n*3)...)
		all = append(all, addition(n*3))
	}
	for _, hs := range []int{3, 8, 16, 32, 65} {
		all = append(all, attention(3, 33, 2*hs, 2)...)
	}
	all = append(all, attention(2, 17, 80, 1)...)
	all = append(all, embedding(3, 17, 65)...)
	for _, n := range []int{1, 63, 64, 65, 1000, 4097, 10000} {
		all = append(all, sumSquares(n), adamW(n, 6), masking(n))
		for _, fixed := range []int{0, 8, 16, 24} {
			all = append(all, magnitudeHistogram(n, fixed, false), magnitudeHistogram(n, fixed, true))
		}
	}
	return all
}

// smallCalls returns every call once, with no operand empty or absent.
func smallCalls() []call {
	w := newPattern(5, 6, 0.5)
	return slices.Concat(
		embedding(2, 3, 4), attention(2, 3, 4, 2), gelu(7), crossEntropy(3, 4, 2),
		[]call{
			layerNormForward(3, 4), layerNormBackwardInput(3, 4), layerNormBackwardWeight(3, 4),
			matmulForward(3, 4, 5, true), matmulBackwardInput(3, 4, 5), matmulBackwardWeight(3, 4, 5, true),
			spmmForward(3, w, true), spmmBackwardInput(3, w), sddmm(3, w, true),
			addition(7), sumSquares(7), adamW(7, 2), masking(70), magnitudeHistogram(70, 8, true),
		})
}
