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
func (of maker) calls() []call {
	var all []call
	for _, s := range products {
		n, c, o := s[0], s[1], s[2]
		for _, bias := range []bool{false, true} {
			all = append(all, of.matmulForward(n, c, o, bias), of.matmulBackwardWeight(n, c, o, bias))
		}
		all = append(all, of.matmulBackwardInput(n, c, o))
	}
	for _, s := range [][3]int{{0, 5, 3}, {1, 17, 3}, {17, 65, 33}, {64, 128, 64}, {129, 65, 129}} {
		for _, sparsity := range []float64{0, 0.5, 0.9, 0.99, 1} {
			n, cols, rows := s[0], s[1], s[2]
			w := of.newPattern(rows, cols, sparsity)
			all = append(all, of.spmmForward(n, w, false), of.spmmForward(n, w, true), of.spmmBackwardInput(n, w),
				of.sddmm(n, w, false), of.sddmm(n, w, true))
		}
	}
	for _, n := range tokens {
		for _, c := range []int{1, 3, 17, 64, 129} {
			all = append(all, of.layerNormForward(n, c), of.layerNormBackwardInput(n, c), of.layerNormBackwardWeight(n, c))
		}
		for _, v := range []int{1, 3, 65, 256} {
			all = append(all, of.crossEntropy(n, v, 0)...)
			all = append(all, of.crossEntropy(n, v, 5)...)
		}
		all = append(all, of.attention(equal(1, n), n, 1, 1)...)
		all = append(all, of.attention(equal(1, n), n, 15, 3)...)
		all = append(all, of.embedding(n, 3)...)
		all = append(all, of.gelu(n*3)...)
		all = append(all, of.addition(n*3), of.accumulation(n*3))
	}
	for _, hs := range []int{3, 8, 16, 32, 65} {
		all = append(all, of.attention(equal(3, 33), 33, 2*hs, 2)...)
		all = append(all, of.attention([]int{7, 1, 0, 33, 70, 1}, 70, 2*hs, 2)...)
	}
	all = append(all, of.attention(equal(2, 17), 17, 80, 1)...)
	for _, hs := range []int{32, 64, 128} { // what kernels on matrix units are made for, beyond one tile
		all = append(all, of.attention(equal(2, 150), 150, 2*hs, 2)...)
		all = append(all, of.attention([]int{0, 1, 64, 150, 0, 33, 0}, 170, 2*hs, 2)...)
	}
	all = append(all, of.embedding(0, 3)...)
	all = append(all, of.attention([]int{0, 0}, 5, 6, 2)...)
	all = append(all, of.attention(nil, 0, 6, 2)...)
	all = append(all, of.embedding(51, 65)...)
	for _, n := range []int{1, 63, 64, 65, 1000, 4097, 10000} {
		all = append(all, of.sumSquares(n), of.adamW(n, 6), of.masking(n))
		for _, fixed := range []int{0, 8, 16, 24} {
			all = append(all, of.magnitudeHistogram(n, fixed, false), of.magnitudeHistogram(n, fixed, true))
		}
	}
	return all
}

// smallCalls returns every call once, with no operand empty or absent.
func (of maker) smallCalls() []call {
	w := of.newPattern(5, 6, 0.5)
	return slices.Concat(
		of.embedding(6, 4), of.attention(equal(2, 3), 3, 4, 2), of.gelu(7), of.crossEntropy(3, 4, 2),
		[]call{
			of.layerNormForward(3, 4), of.layerNormBackwardInput(3, 4), of.layerNormBackwardWeight(3, 4),
			of.matmulForward(3, 4, 5, true), of.matmulBackwardInput(3, 4, 5), of.matmulBackwardWeight(3, 4, 5, true),
			of.spmmForward(3, w, true), of.spmmBackwardInput(3, w), of.sddmm(3, w, true),
			of.addition(7), of.accumulation(7), of.sumSquares(7), of.adamW(7, 2), of.masking(70), of.magnitudeHistogram(70, 8, true),
		})
}
