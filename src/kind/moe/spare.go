package moe

import (
	"fmt"
	"slices"

	"dynmo/src/kind/moe/place"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/tensor"
)

// Where rows are cut into blocks, a replica may have copies of experts that others own. The rows of
// an expert in the microbatch of all replicas are cut every BlockRows rows. A product covers one
// block, on any replica. The owner and each copy round the block's part of a weight's gradient to a
// multiple of 2^-50 and add it to integers (see kernel.Backend.AccumulateFixed). The pipeline adds
// the copies' sums to the owner's and rounds once. Copies get the weights of the owner's update. So
// no bit depends on the number and places of copies, or on their blocks.
//
// Departs: DeepSeek-V3 (2024, section 3.4) and other published copies of experts add up float
// gradients in the order of the copies.

// wholeRows is more rows than an expert has: a block that holds them all.
const wholeRows = 1 << 40

// block returns how many rows of an expert are worked on at a time, at most.
func (e Experts) block() int {
	if e.BlockRows == 0 {
		return wholeRows
	}
	return e.BlockRows
}

// Pieces returns the experts of a block, and for how many a replica has room, where they are
// spread and their rows cut into blocks.
func (e Experts) Pieces(c model.Config) (count, places int) {
	if c.Spread == 0 || e.BlockRows == 0 {
		return 0, 0
	}
	return e.Count, min(e.Count, e.on(c).here())
}

// Holders returns the map of a block.
func (e Experts) Holders(c model.Config, block int) ([][]int, error) {
	if c.Spread == 0 || block < 0 {
		return nil, nil
	}
	return e.mapOf(c, block)
}

// mapOf returns where the experts of a block are: evenly spread unless the pieces say more.
func (e Experts) mapOf(c model.Config, block int) (piece.Map, error) {
	if c.Pieces.IsZero() {
		return piece.Even(e.Count, c.Spread), nil
	}
	if n := c.Pieces.Blocks(); n != c.Blocks {
		return nil, fmt.Errorf("experts of %d blocks, want %d", n, c.Blocks)
	}
	m := c.Pieces.Block(block)
	if err := m.Check(e.Count, c.Spread, e.Count); err != nil {
		return nil, fmt.Errorf("experts of block %d: %w", block, err)
	}
	return m, nil
}

// hold gives the part the matrices of the experts of a block that the replica owns or has a copy
// of, ascending.
func (e *experts) hold(c model.Config, block int) {
	if c.Spread == 0 {
		for k := range e.Count {
			e.list = append(e.list, newMLP(c, block, k))
		}
		return
	}
	if c.Replica == model.Fullest {
		for k := range min(e.here(), e.Count) {
			e.take(c, block, k, []int{model.Fullest})
		}
		return
	}
	m, err := e.mapOf(c, block)
	if err != nil {
		panic("model: " + err.Error())
	}
	e.on = m
	for k, holders := range m {
		if slices.Contains(holders, c.Replica) {
			e.take(c, block, k, holders)
		}
	}
}

// take adds the matrices of an expert that some replicas hold, this one among them.
func (e *experts) take(c model.Config, block, expert int, holders []int) {
	m := newMLP(c, block, expert)
	for _, p := range m.Params() {
		p.Own, p.Piece, p.Holders, p.Exact = holders[0] == c.Replica, expert, holders, e.BlockRows > 0
		p.Copy = !p.Own
	}
	e.list = append(e.list, m)
}

// newMLP returns the matrices of an expert of a block.
func newMLP(c model.Config, block, expert int) mlpOf {
	at, d, name := model.InBlock(block), c.Deviation(block), fmt.Sprintf("expert.%d.", expert)
	return mlpOf{
		gateup: c.NewLinear(at, name+"gateup", 2*c.Intermediate, c.Hidden, d),
		down:   c.NewLinear(at, name+"down", c.Hidden, c.Intermediate, c.Residual(d)),
	}
}

// spreading is what a replica knows of the rows of spread experts. The segments of two replicas
// that are rows of one message are at the same place of their lists.
type spreading struct {
	total []int       // by expert: those of all replicas
	sent  [][]segment // by replica: of the assignments here those that it works on
	taken [][]segment // by replica: of the rows that are worked on here those of its tokens
}

// deal shares the rows of all experts out to the replicas that hold them, by how many rows of
// each replica each expert has. Every replica deals alike.
func (d *dispatch) deal(dealer *place.Dealer, on piece.Map, counts []int32, me int) {
	clear(d.total)
	for i, n := range counts {
		d.total[i%d.Count] += int(n)
	}
	for replica := range d.Spread {
		d.sent[replica], d.taken[replica] = d.sent[replica][:0], d.taken[replica][:0]
	}
	d.blocks, d.worked = d.blocks[:0], 0
	shares, mine := dealer.Deal(on, d.total, d.block(), d.Spread), 0
	for expert, holders := range on {
		first := 0
		for i, holder := range holders {
			last := min(first+int(shares[expert][i])*d.block(), d.total[expert])
			dealt := segment{first, last}
			d.send(expert, holder, dealt, counts, me)
			if holder == me {
				d.take(expert, mine, dealt, counts)
			}
			first = last
		}
		if slices.Contains(holders, me) {
			mine++
		}
	}
}

// send notes which of the assignments here are among the rows of an expert that a replica works on.
func (d *dispatch) send(expert, holder int, dealt segment, counts []int32, me int) {
	before := 0 // rows of earlier replicas
	for replica := range me {
		before += int(counts[replica*d.Count+expert])
	}
	here := d.rowsOf(expert)
	if both, any := dealt.meets(segment{before, before + here.count()}); any {
		d.sent[holder] = append(d.sent[holder], segment{here.lo + both.lo - before, here.lo + both.hi - before})
	}
}

// take notes rows that an expert works on here, by whose they are, and its blocks.
func (d *dispatch) take(expert, mine int, dealt segment, counts []int32) {
	before := 0
	for replica := range d.Spread {
		n := int(counts[replica*d.Count+expert])
		if both, any := dealt.meets(segment{before, before + n}); any {
			at := d.worked + both.lo - dealt.lo
			d.taken[replica] = append(d.taken[replica], segment{at, at + both.count()})
		}
		before += n
	}
	end := d.worked + dealt.count()
	for lo := d.worked; lo < end; lo += d.block() {
		d.blocks = append(d.blocks, block{mine, segment{lo, min(lo+d.block(), end)}})
	}
	d.worked = end
}

// weightProduct adds the product of n rows to the gradient of a matrix: where it is added up
// exactly, rounded to fixed point.
func (e *experts) weightProduct(x *model.Exec, l model.Linear, n int, dout, inp tensor.Mem) {
	if !l.W.Exact {
		l.BackwardWeight(x, n, dout, inp)
		return
	}
	if l.W.Frozen {
		return
	}
	elements := l.W.Stored()
	product := x.Scratch.Span(0, int64(elements)*x.Backend.DType().Wide().Size())
	x.Stream.Zero(product)
	x.Backend.MatmulBackwardWeight(x.Stream, product, tensor.Mem{}, dout, inp, n, l.W.Cols, l.W.Rows)
	x.Backend.AccumulateFixed(x.Stream, l.W.Sum, product, elements)
}
