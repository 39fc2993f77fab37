package kerneltest

import (
	"os"

	"dynmo/src/kernel"
)

// wide returns the calls whose rows several warps share, or several blocks, at widths of
// real models on few rows: GPT-2's 768, a medium GPT-2's 1024, LLaMA's 4096, and 9000,
// which is more than a block holds at once and no power of two.
func (of maker) wide() (all []example) {
	for _, c := range []int{768, 1024, 4096, 9000} {
		all = append(all, of.norm(3, c, true)...)
		all = append(all, of.norm(3, c, false)...)
		all = append(all, of.crossEntropy(3, c, 0)...)
		all = append(all, of.crossEntropy(2, c, 5)...)
		all = append(all, of.embedding(3, c)...)
		all = append(all, of.rows(3, c)...)
		all = append(all, of.combine(3, 2, c)...)
		all = append(all, of.swiGLU(2, c)...)
		all = append(all, of.groups([]int{2, 0, 1}, 0, c, 8, 8)...)
		all = append(all, of.rotary(2, c/250, 250, c), of.rotary(3, c/128, 128, c))
		biases := kernel.Call{Op: kernel.MatmulBackwardWeight, Dims: kernel.Dims{N: 70, C: 1, O: c}}
		all = append(all, of.example(biases, "", nil, nil))
	}
	if os.Getenv("DYNMO_LONG") == "" {
		return all
	}
	for _, s := range [][3]int{{70, 768, 2304}, {33, 3072, 768}, {130, 1024, 4096}, {17, 4096, 1376}} {
		for _, op := range []kernel.Op{
			kernel.MatmulForward, kernel.MatmulForwardGELU, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight,
		} {
			all = append(all, of.example(kernel.Call{Op: op, Dims: kernel.Dims{N: s[0], C: s[1], O: s[2]}}, "", nil, judgeOf(op)))
		}
		all = append(all, of.groups([]int{s[0], 1, 0, 129}, 3, s[1], s[2], 64)...)
	}
	return all
}

// judgeOf is the judge of a product.
func judgeOf(op kernel.Op) judge {
	if op == kernel.MatmulForwardGELU {
		return bounded(geluOfProduct)
	}
	return nil
}
