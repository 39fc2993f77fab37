package kerneltest

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"dynmo/src/kernel"
)

// tokens are the lengths that calls on rows run at; with many rows widths are fewer.
var tokens = []int{1, 17, 64, many}

const many = 1023

// products are the shapes (n, c, o) of matrix products: each dimension 0 or 1,
// odd, a power of two, and above and below the blocks of kernels.
var products = [][3]int{
	{0, 3, 5}, {1, 1, 1}, {1, 3, 65}, {1, 129, 17}, {1, 300, 501}, {3, 17, 129}, {17, 65, 3}, {17, 129, 17},
	{64, 64, 64}, {65, 17, 1}, {129, 3, 129}, {129, 129, 65}, {1023, 65, 17}, {1023, 17, 65},
}

// absent gives the operand of this name as absent.
func absent(name string) map[string]any { return map[string]any{name: nil} }

// made is, by maker, what makes its examples once: they are the same for every
// backend, and nobody writes to them.
var made sync.Map

// examples returns every operation at every shape.
func (of maker) examples() []example {
	once, _ := made.LoadOrStore(of, sync.OnceValue(of.all))
	return once.(func() []example)()
}

// all makes every operation at every shape.
func (of maker) all() []example {
	var all []example
	for _, s := range products {
		call := func(op kernel.Op) kernel.Call {
			return kernel.Call{Op: op, Dims: kernel.Dims{N: s[0], C: s[1], O: s[2]}}
		}
		all = append(all,
			of.example(call(kernel.MatmulForward), "", nil, nil),
			of.example(call(kernel.MatmulForward), ",no bias", absent("bias"), nil),
			of.example(call(kernel.MatmulForwardAdd), "", nil, nil),
			of.example(call(kernel.MatmulForwardGELU), "", nil, of.bounded(of.geluOfProduct)),
			of.example(call(kernel.MatmulBackwardInput), "", nil, nil),
			of.example(call(kernel.MatmulBackwardGELU), "", nil, of.productOfGELU),
			of.example(call(kernel.MatmulBackwardWeight), "", nil, nil),
			of.example(call(kernel.MatmulBackwardWeight), ",no bias", absent("dbias"), nil))
	}
	for _, s := range [][3]int{{0, 5, 3}, {1, 17, 3}, {17, 65, 33}, {64, 128, 64}, {129, 65, 129}} {
		for _, sparsity := range []float64{0, 0.5, 0.9, 0.99, 1} {
			all = append(all, of.sparse(s[0], s[1], s[2], 0, 1, sparsity)...)
		}
	}
	for _, n := range tokens {
		widths, vocabularies := []int{1, 3, 17, 64, 129}, []int{1, 3, 65, 256}
		if n == many {
			widths, vocabularies = []int{3, 129}, []int{3, 256}
		}
		for _, c := range widths {
			all = append(all, of.norm(n, c, true)...)
			all = append(all, of.norm(n, c, false)...)
		}
		for _, v := range vocabularies {
			all = append(all, of.crossEntropy(n, v, 0)...)
			all = append(all, of.crossEntropy(n, v, 5)...)
		}
		all = append(all, of.attention(equal(1, n), n, 1, 1)...)
		some := min(n, 300) // beyond any tile
		all = append(all, of.attention(equal(1, some), some, 15, 3)...)
		all = append(all, of.embedding(n, 3)...)
		all = append(all, of.pointwise(n*3)...)
		all = append(all, of.roundings(n*3)...)
		all = append(all, of.fixedPoint(n*3)...)
	}
	for _, s := range [][2]int{{0, 3}, {1, 1}, {17, 3}, {64, 64}, {33, 129}, {1023, 8}} {
		all = append(all, of.rows(s[0], s[1])...)
		all = append(all, of.swiGLU(s[0], s[1])...)
	}
	for _, s := range [][2]int{{0, 3}, {51, 65}, {17, 1160}, {5000, 2}} { // wide rows, and more tokens than a block sorts
		all = append(all, of.embedding(s[0], s[1])...)
	}
	for _, hs := range []int{3, 8, 16, 32, 65} {
		all = append(all, of.attention(equal(3, 33), 33, 2*hs, 2)...)
		all = append(all, of.attention([]int{7, 1, 0, 33, 70, 1}, 70, 2*hs, 2)...)
	}
	all = append(all, of.attention(equal(2, 17), 17, 80, 1)...)
	for _, hs := range []int{32, 64, 128} { // those of kernels on matrix units, beyond one tile
		all = append(all, of.attention(equal(2, 150), 150, 2*hs, 2)...)
		all = append(all, of.attention([]int{0, 1, 64, 150, 0, 33, 0}, 170, 2*hs, 2)...)
	}
	all = append(all, of.attention([]int{0, 0}, 5, 6, 2)...)
	all = append(all, of.attention(nil, 0, 6, 2)...)
	for _, s := range []struct{ hs, nh, kv, most int }{{1, 4, 1, 70}, {3, 4, 2, 70}, {8, 6, 3, 70}, {32, 2, 1, 150}, {64, 4, 2, 70}, {65, 3, 1, 70}, {128, 2, 1, 150}} {
		for _, lengths := range [][]int{{1}, {33, 33}, {0, 1, 64, s.most, 0, 33, 0}} {
			all = append(all, of.grouped(lengths, s.most+20, s.nh*s.hs, s.nh, s.kv)...)
		}
	}
	all = append(all, of.grouped(nil, 0, 6, 2, 1)...)
	all = append(all, of.norm(0, 3, false)...)
	for _, n := range tokens {
		all = append(all, of.rotary(n, 3, 4, 12), of.rotary(n, 2, 64, 200))
	}
	all = append(all, of.rotary(0, 1, 2, 2), of.rotary(5, 0, 2, 3), of.rotary(33, 1, 2, 2), of.rotary(65, 3, 18, 55), of.rotary(9, 5, 128, 640))
	for _, s := range [][3]int{{0, 2, 3}, {1, 1, 1}, {17, 0, 3}, {17, 2, 3}, {64, 4, 64}, {33, 3, 129}, {1023, 2, 8}} {
		all = append(all, of.combine(s[0], s[1], s[2])...)
	}
	for _, s := range []struct {
		lengths  []int
		capacity float64
	}{{nil, 0.5}, {[]int{0, 0}, 0.5}, {[]int{1}, 0.01}, {[]int{33, 0, 10, 1}, 0.1}, {[]int{5, 1100, 0, 1024}, 0.4}, {[]int{70}, 1}} {
		all = append(all, of.depths(s.lengths, s.capacity)...)
	}
	for _, s := range [][4]int{{0, 3, 2, 1}, {1, 1, 1, 1}, {17, 3, 2, 5}, {64, 8, 2, 64}, {1023, 8, 1, 150}, {300, 16, 4, 60}, {17, 40, 2, 3}} {
		all = append(all, of.routed(s[0], s[1], s[2], s[3])...)
		all = append(all, of.scores(s[0], s[1])...)
	}
	for _, s := range []struct {
		rows            []int
		more, c, o, gap int
	}{
		{nil, 3, 5, 2, 0}, {[]int{0, 0}, 0, 3, 3, 1}, {[]int{1}, 0, 1, 1, 0}, {[]int{3, 0, 17}, 2, 17, 65, 3}, {[]int{65, 1}, 0, 129, 33, 0},
		{[]int{0, 150, 33, 0, 129}, 7, 64, 136, 8}, {[]int{20, 0, 128}, 20, 136, 264, 64}, {slices.Repeat([]int{1}, 20), 0, 16, 264, 0},
	} {
		all = append(all, of.groups(s.rows, s.more, s.c, s.o, s.gap)...)
	}
	for _, s := range []struct{ hs, buckets int }{{1, 1}, {3, 2}, {16, 4}, {32, 16}, {64, 8}, {65, 4}, {128, 2}} {
		for _, lengths := range [][]int{{33, 33}, {0, 1, 64, 150, 0, 33, 0}} {
			all = append(all, of.hashed(lengths, 170, 2*s.hs, 2, s.buckets)...)
			all = append(all, of.sparseAttention(lengths, 170, 2*s.hs, 2, s.buckets)...)
		}
	}
	all = append(all, slices.Concat(of.hashed(equal(1, 5), 5, 6, 2, 64), of.hashed([]int{0, 0}, 5, 6, 2, 4), of.hashed(nil, 0, 6, 2, 4))...)
	for _, s := range [][3]int{{0, 6, 2}, {1, 3, 3}, {17, 6, 2}, {64, 128, 2}, {33, 130, 1}} {
		all = append(all, of.sharedKeys(s[0], s[1], s[2])...)
	}
	all = append(all, of.sparse(70, 65, 33, 7, 1, 0.7)...)
	all = append(all, of.sparse(70, 530, 550, 7, 1, 0.9)...) // two blocks of 512 outputs, three chunks of 256 inputs
	all = append(all, of.sparse(2, 4200, 17, 0, 1, 0.9)...)  // more lists than place_short has threads
	all = append(all, of.sparse(33, 130, 64, 40, 1, 0.3)...)
	for _, s := range []struct {
		n, cols, rows, above int
		sparsity             float64
	}{{0, 32, 32, 0, 0}, {1, 32, 64, 0, 0.5}, {17, 96, 32, 64, 0.3}, {129, 160, 96, 0, 0.4}, {70, 192, 32, 32, 0}, {129, 64, 64, 0, 1}} {
		all = append(all, of.sparse(s.n, s.cols, s.rows, s.above, kernel.Block, s.sparsity)...)
	}
	for _, hs := range []int{3, 32, 64, 65} {
		all = append(all, of.someQueries([]int{0, 1, 64, 150, 0, 33, 0}, 170, 2*hs, 2)...)
	}
	all = append(all, of.sparseAttention(equal(1, 5), 5, 6, 2, 64)...)
	all = append(all, of.sparseAttention([]int{0, 0}, 5, 6, 2, 4)...)
	all = append(all, of.selection(0)...)          // a matrix without entries
	all = append(all, of.selection(70000)[4:6]...) // some ties, in more chunks than a warp has lanes
	for _, n := range []int{1, 63, 64, 65, 1000, 4097, 10000} {
		all = append(all, of.sumSquares(n), of.adamW(n, 6), of.masking(n))
		for _, fixed := range []int{0, 8, 16, 24} {
			all = append(all, of.magnitudeHistogram(n, fixed, false), of.magnitudeHistogram(n, fixed, true))
		}
		all = append(all, of.selection(n)...)
	}
	for _, s := range [][2]int{{1, 1}, {3, 17}, {64, 64}, {65, 129}, {130, 65}} {
		for _, probability := range []float64{0, 0.3, 1} {
			all = append(all, of.compaction(s[0], s[1], probability)...)
		}
	}
	for _, s := range [][3]int{{1, 1, 1}, {1, 3, 17}, {4, 2, 64}, {3, 5, 1003}} {
		all = append(all, of.structured(s[0], s[1], s[2])...)
	}
	return append(all, of.wide()...)
}

// embedding returns both calls, and the backward without positions, with tables small
// enough that tokens and positions repeat, in no order.
func (of maker) embedding(n, c int) (all []example) {
	const v, places = 7, 19
	r := of.draw(givenSeed)
	given := map[string]any{"tokens": r.indices(n, v), "positions": r.indices(n, places)}
	for _, name := range []string{"wte", "dwte"} {
		given[name] = r.normal(v * c)
	}
	for _, name := range []string{"wpe", "dwpe"} {
		given[name] = r.normal(places * c)
	}
	for _, op := range []kernel.Op{kernel.EmbeddingForward, kernel.EmbeddingBackward} {
		all = append(all, of.example(kernel.Call{Op: op, Dims: kernel.Dims{N: n, C: c}}, "", given, nil))
	}
	given["dwpe"] = nil
	alone := of.example(kernel.Call{Op: kernel.EmbeddingBackward, Dims: kernel.Dims{N: n, C: c}}, ",no positions", given, nil)
	return append(all, alone)
}

// sparse returns the three calls with a random matrix (rows, cols). Their wanted
// values are those of the dense calls on the matrix with zeros in the places left
// out. A block of side x side entries is left out with probability sparsity; every fifth
// row of them is left out whole unless all entries are kept. The matrix is the rows of a
// larger one that has some above it.
func (of maker) sparse(n, cols, rows, above, side int, sparsity float64) (all []example) {
	r, rowPtr, colIdx, kept := of.draw(givenSeed), []int32{0}, []int32(nil), []int(nil)
	whole := make([]bool, (above+rows)*cols) // by a block's first entry
	for i := range whole {
		whole[i] = sparsity == 0 || i/cols/side%5 != 1 && r.Float64() >= sparsity
	}
	for i := range whole {
		if whole[i/cols/side*side*cols+i%cols/side*side] {
			colIdx, kept = append(colIdx, int32(i%cols)), append(kept, i)
		}
		if i%cols == cols-1 {
			rowPtr = append(rowPtr, int32(len(colIdx)))
		}
	}
	rowPtr = rowPtr[above:]
	first := int(rowPtr[0])
	for e := range kept {
		kept[e] -= above * cols
	}
	dense := func(op kernel.Op) func(kernel.Call, values) values {
		return func(c kernel.Call, before values) values {
			before["weight"], before["dweight"] = make([]float64, rows*cols), make([]float64, rows*cols)
			for e, i := range kept[first:] {
				if value := before["w.Values"]; value != nil {
					before["weight"][i] = value[first+e]
				} else {
					before["dweight"][i] = before["dvalues"][first+e]
				}
			}
			after := reference(kernel.Call{Op: op, Dims: c.Dims}, before)
			after["dvalues"] = make([]float64, len(kept))
			if dweight := after["dweight"]; dweight != nil {
				copy(after["dvalues"], before["dvalues"][:first])
				for e, i := range kept[first:] {
					after["dvalues"][first+e] = dweight[i]
				}
			}
			return after
		}
	}
	for _, x := range []struct {
		op, twin kernel.Op
		bias     string
	}{
		{kernel.SpMMForward, kernel.MatmulForward, "bias"},
		{kernel.SpMMBackwardInput, kernel.MatmulBackwardInput, ""},
		{kernel.SDDMM, kernel.MatmulBackwardWeight, "dbias"},
	} {
		call := kernel.Call{Op: x.op, Dims: kernel.Dims{N: n, C: cols, O: rows, NNZ: len(kept)}, Blocks: side == kernel.Block}
		given := map[string]any{"w.RowPtr": rowPtr, "w.ColIdx": colIdx}
		note := fmt.Sprintf(",sparsity=%g", sparsity)
		if side > 1 {
			note += ",in blocks"
		}
		if above > 0 {
			note += fmt.Sprintf(",above=%d", above)
		}
		all = append(all, of.example(call, note, given, termwise(dense(x.twin))))
		if x.bias != "" {
			given[x.bias] = nil
			all = append(all, of.example(call, note+",no bias", given, termwise(dense(x.twin))))
		}
	}
	return all
}

// equal returns the lengths of b sequences of t tokens.
func equal(b, t int) []int { return slices.Repeat([]int{t}, b) }

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
			all = append(all, of.example(kernel.Call{Op: op, Dims: kernel.Dims{N: s[0], C: s[1], O: s[2]}}, "", nil, of.judgeOf(op)))
		}
		all = append(all, of.groups([]int{s[0], 1, 0, 129}, 3, s[1], s[2], 64)...)
	}
	return all
}

// judgeOf is the judge of a product.
func (of maker) judgeOf(op kernel.Op) judge {
	if op == kernel.MatmulForwardGELU {
		return of.bounded(of.geluOfProduct)
	}
	return nil
}
