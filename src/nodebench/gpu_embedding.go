package nodebench

import (
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// indices is device memory of integers below a limit, which the host knows.
type indices struct {
	mem  tensor.Mem
	list []int32
}

// indices returns n random integers below a limit.
func (g *gpu) indices(n, limit int) indices {
	r := random.Keyed(uint64(n), uint64(limit))
	list := make([]int32, n)
	for i := range list {
		list[i] = r.Int32N(int32(limit))
	}
	return indices{upload(g.bench, list), list}
}

// embedding measures the look-up of b·t tokens in a table (v, c), and its backward. Bytes count
// every used row once, and every position once:
//
//	forward   rows of the tables, out
//	backward  dout, rows of the wide gradients twice
func (g *gpu) embedding() {
	k, d := g.BF16, g.BF16.DType()
	b, t, c, v := g.size(32, 3), g.size(2048, 5), g.size(1024, 64), g.size(50257, 17)
	n := b * t
	tokens := g.indices(n, v)
	wte, wpe, dout := g.normal(v*c, d), g.normal(t*c, d), g.normal(n*c, d)
	dwte, dwpe := g.normal(v*c, d.Wide()), g.normal(t*c, d.Wide())
	out := g.blank(n*c, d)
	inSequence := make([]int32, n)
	for i := range inSequence {
		inSequence[i] = int32(i % t)
	}
	positions := upload(g.bench, inSequence)
	if g.err != nil {
		return
	}
	calls := []func(){
		func() { k.EmbeddingForward(g.stream, out, tokens.mem, positions, wte.mem, wpe.mem, n, c) },
		func() { k.EmbeddingBackward(g.stream, dwte.mem, dwpe.mem, dout.mem, tokens.mem, positions, n, c) },
	}
	for _, call := range calls {
		call()
	}
	places := make(map[int32][]int)
	for i, token := range tokens.list {
		places[token] = append(places[token], i)
	}
	forward, backward := checker{unit: unit(d)}, checker{}
	for _, i := range spread(n, 16) {
		token := int(tokens.list[i])
		for j, x := range g.values(out, i*c, c, d) {
			a, b := wte.at(token*c+j), wpe.at(i%t*c+j)
			forward.elementwise(x, a+b, max(a, b, -a, -b))
		}
		g.gathered(&backward, dwte, token, dout, places[tokens.list[i]], c)
	}
	for _, position := range spread(t, 16) {
		var places []int
		for i := position; i < n; i += t {
			places = append(places, i)
		}
		g.gathered(&backward, dwpe, position, dout, places, c)
	}
	seconds := g.seconds(calls...)
	rows, element, wide := float64((len(places)+t)*c), float64(d.Size()), float64(d.Wide().Size())
	moved := float64(n*c) * element
	g.bandwidth("embedding_forward", moved+rows*element+4*float64(n), seconds[0], 0, forward.wrong)
	g.bandwidth("embedding_backward", moved+2*rows*wide+4*float64(n), seconds[1], 0, backward.wrong)
}

// gathered checks a row of a table's gradient. It must be the row before the call plus the rows of
// dout at places.
func (g *gpu) gathered(check *checker, table operand, row int, dout operand, places []int, c int) {
	for j, x := range g.values(table.mem, row*c, c, tensor.F32) {
		var sum total
		sum.add(table.at(row*c + j))
		for _, i := range places {
			sum.add(dout.at(i*c + j))
		}
		check.sum(x, sum)
	}
}
