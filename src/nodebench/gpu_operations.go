package nodebench

import (
	"math"
	"slices"
	"strings"

	devcpu "dynmo/src/device/cpu"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/random"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// memoryReach is the share of a copy's bandwidth to reach by calls that mostly move memory.
// Operands are much larger than caches.
const memoryReach = 0.8

// operations are calls in bf16 that share operands by name, such as a forward and its backward.
type operations struct {
	sizes map[byte]int // length of each axis
	// axes has the axes of each operand, in memory order. Optional operands without axes are absent.
	// Integers of "N>V" are indices of axis V, those of "#N" count rows of N, and those of "B+" are
	// one more than B has elements.
	axes    map[string]string
	lists   map[string][]int32 // integer operands
	uniform string             // operand drawn from [0, 1); others are standard normal
	restore string             // operand that is restored before every timed call
	numbers kernel.Call        // the numbers of the calls, and dimensions that are no axes
	timed   []timed
}

// call returns a call without operands, with axes of lengths n.
func (o operations) call(op kernel.Op, n map[byte]int) kernel.Call {
	c := o.numbers
	c.Op, c.N, c.C, c.O, c.V, c.K, c.E, c.HS = op, n['N'], n['C'], n['O'], n['V'], n['K'], n['E'], n['S']
	if n['B'] > 0 { // attention, with channels in heads
		c.B, c.Longest, c.N, c.C, c.NH, c.KV = n['B'], n['T'], n['B']*n['T'], n['H']*n['S'], n['H'], n['H']
	}
	return c
}

// timed is a call with its figures.
type timed struct {
	op      kernel.Op
	name    string
	bytes   float64 // that the call must move; 0: the call is compared by operations
	reach   float64 // of the bandwidth of a copy
	samples []sampling

	// Results may be off by tolerance times most, or than the value if that is larger. If most is 0,
	// results are sums of products, and may be off by a share of the sum of absolute values.
	most float64
	// rows means that terms of a sum were rounded themselves: results may also be off by a few
	// roundings of a typical value of their row.
	rows bool
}

// sampling is the indices of an axis at which results are checked: runs of width elements, spread
// over the axis. Other axes are checked whole.
type sampling struct {
	axis        byte
	runs, width int
}

// operate checks and measures calls, one list after the other.
func (g *gpu) operate(lists ...operations) {
	for _, o := range lists {
		if g.inTurn(o); g.err != nil {
			return
		}
		g.free()
	}
}

// inTurn checks the calls of some lists, measures all of them in the same rounds, and appends their
// figures. It returns the seconds of each call, and how many results are wrong in all.
func (g *gpu) inTurn(lists ...operations) (s spans, wrong int) {
	var all []prepared
	var calls []func()
	for _, o := range lists {
		some := o.prepare(g)
		if g.err != nil {
			return nil, 0
		}
		for _, p := range some {
			calls = append(calls, p.restore, func() { g.BF16.Run(g.stream, p.call) })
		}
		all = append(all, some...)
	}
	rounds := g.spans(calls...)
	for i, p := range all {
		s, wrong = append(s, rounds[2*i+1]), wrong+p.wrong
		if seconds := trace.Median(s[i]); p.bytes > 0 {
			g.bandwidth(p.name, p.bytes, seconds, p.reach, p.wrong)
		} else {
			g.rate(p.name, p.call.Flops(), seconds, p.wrong)
		}
	}
	return s, wrong
}

// prepared is a timed call that was made once.
type prepared struct {
	timed
	call    kernel.Call
	restore func() // is called before each further call
	wrong   int    // results
}

// prepare makes the calls once and checks the results.
func (o operations) prepare(g *gpu) []prepared {
	d, pool := g.BF16.DType(), map[string]operand{}
	var all []prepared
	var products []kernel.Product
	for _, t := range o.timed {
		c, optional := o.call(t.op, o.sizes), false
		for i, p := range t.op.Of().Operands {
			if _, made := pool[p.Name]; !made && o.has(p, d) {
				pool[p.Name] = o.made(g, p)
			}
			c.Mem[i] = pool[p.Name].mem
			optional = optional || p.Optional && o.has(p, d)
		}
		all = append(all, prepared{timed: t, call: c})
		if kernel.MatmulForward <= t.op && t.op <= kernel.MatmulBackwardWeight {
			products = append(products, kernel.Product{Op: t.op, N: c.N, C: c.C, O: c.O, Bias: optional})
		}
	}
	restore := func() {}
	if p := pool[o.restore]; o.restore != "" && g.err == nil {
		start := g.repeated(p.block, int(p.mem.Bytes/p.elements.Size()), p.elements)
		restore = func() { g.stream.Copy(p.mem, start) }
	}
	if len(products) > 0 {
		g.tune(products)
	}
	if g.err != nil {
		return nil
	}
	for _, p := range all {
		g.BF16.Run(g.stream, p.call)
	}
	for i, p := range all {
		all[i].restore, all[i].wrong = restore, o.checked(g, p.timed, p.call, pool)
	}
	return all
}

// has reports whether the calls have an operand.
func (o operations) has(p kernel.Operand, d tensor.DType) bool {
	return (o.axes[p.Name] != "" || p.Name == "loss") && (p.Kind != kernel.Master || d != d.Wide())
}

// made returns an operand for its first call. The host knows its numbers unless the call sets them.
func (o operations) made(g *gpu, p kernel.Operand) operand {
	if list, ok := o.lists[p.Name]; ok {
		return operand{mem: upload(g.bench, list)}
	}
	d, axes := p.Kind.Type(g.BF16.DType()), o.axes[p.Name]
	n := 1
	for _, axis := range []byte(axes) {
		n *= o.sizes[axis]
	}
	if strings.HasPrefix(axes, "E") {
		n += (o.sizes['E'] - 1) * o.numbers.Gap
	}
	switch {
	case p.Use == kernel.Set:
		return operand{mem: g.blank(n, d), elements: d}
	case p.Name == o.uniform:
		return g.drawn(n, d, random.Keyed(7).Float64)
	}
	return g.normal(n, d)
}

// indices returns the kept indices of an axis, or all.
func (o operations) indices(axis byte, keep map[byte][]int) []int {
	if kept, some := keep[axis]; some {
		return kept
	}
	return spread(o.sizes[axis], o.sizes[axis])
}

// places returns where the elements of an operand at the kept indices of its axes are.
func (o operations) places(axes string, keep map[byte][]int) []int {
	list := []int{0}
	for _, axis := range []byte(axes) {
		kept := o.indices(axis, keep)
		next := make([]int, 0, len(list)*len(kept))
		for _, at := range list {
			for _, i := range kept {
				next = append(next, at*o.sizes[axis]+i)
			}
		}
		list = next
	}
	if strings.HasPrefix(axes, "E") { // there are gaps between the matrices
		for i := range list {
			list[i] += list[i] / (o.sizes['O'] * o.sizes['C']) * o.numbers.Gap
		}
	}
	return list
}

// kept returns the indices at which a call is checked, and the integer operands there. Of a table
// only the rows that the integers name are kept.
func (o operations) kept(t timed) (keep map[byte][]int, lists map[string][]int32) {
	keep, lists = map[byte][]int{}, map[string][]int32{}
	for _, s := range t.samples {
		width := min(max(1, s.width), o.sizes[s.axis])
		for _, first := range spread(o.sizes[s.axis]-width+1, s.runs) {
			for i := range width {
				keep[s.axis] = append(keep[s.axis], first+i)
			}
		}
		slices.Sort(keep[s.axis])
		keep[s.axis] = slices.Compact(keep[s.axis])
	}
	for name, list := range o.lists {
		axes, table, isIndex := strings.Cut(o.axes[name], ">")
		if axes[0] == '#' {
			for _, end := range list {
				n, _ := slices.BinarySearch(o.indices(axes[1], keep), int(end))
				lists[name] = append(lists[name], int32(n))
			}
			continue
		}
		if strings.HasSuffix(axes, "+") { // sequences have equal lengths
			lists[name] = list[:len(o.indices(axes[0], keep))+1]
			continue
		}
		rows := map[int32]int32{}
		for _, at := range o.places(axes, keep) {
			value := list[at]
			if isIndex && keep[axes[0]] != nil {
				row, seen := rows[value]
				if !seen {
					row = int32(len(rows))
					rows[value], keep[table[0]] = row, append(keep[table[0]], int(value))
				}
				value = row
			}
			lists[name] = append(lists[name], value)
		}
	}
	return keep, lists
}

// checked counts the wrong results of a call that was made once. It makes the call on the sampled
// parts of the operands with package ref in float64.
func (o operations) checked(g *gpu, t timed, c kernel.Call, pool map[string]operand) int {
	keep, lists := o.kept(t)
	small := map[byte]int{}
	for axis := range o.sizes {
		small[axis] = len(o.indices(axis, keep))
	}
	given, at, rows := map[string][]float64{}, map[string][]int{}, t.op.Of().Operands
	for i, p := range rows {
		if x := pool[p.Name]; !c.Mem[i].IsZero() && o.lists[p.Name] == nil {
			at[p.Name] = o.places(o.axes[p.Name], keep)
			numbers := make([]float64, len(at[p.Name]))
			if p.Use != kernel.Set && x.block == nil { // an earlier call has set it
				numbers = g.picked(x, at[p.Name])
			} else if p.Use != kernel.Set {
				for j, place := range at[p.Name] {
					numbers[j] = x.at(place)
				}
			}
			given[p.Name] = numbers
			if p.Kind == kernel.Master { // the first operand is these numbers, rounded
				given[rows[0].Name] = numbers
			}
		}
	}
	call := o.call(t.op, small)
	call.Gap = 0
	call.AdamW.Decayed, _ = slices.BinarySearch(keep['N'], c.AdamW.Decayed)
	want := referenced(call, given, lists, func(x float64) float64 { return x })
	terms := want
	if t.most == 0 {
		terms = referenced(call, given, lists, math.Abs)
	}
	check := checker{}
	for i, p := range rows {
		if p.Use == kernel.Read || c.Mem[i].IsZero() || p.Name == "loss" {
			continue
		}
		of, axes := p.Name, o.axes[p.Name]
		if p.Kind == kernel.Master {
			of = rows[0].Name
		}
		g.compare(&check, t, pool[p.Name], at[p.Name], want[of], terms[of], small[axes[len(axes)-1]])
	}
	if t.op == kernel.CrossEntropy {
		g.checkLoss(&check, pool["loss"], pool["out"], c.N)
	}
	return check.wrong
}

// compare checks the results at places of an operand, in rows of a length.
func (g *gpu) compare(check *checker, t timed, x operand, at []int, want, terms []float64, row int) {
	for i, got := range g.picked(x, at) {
		limit := tolerance * max(math.Abs(want[i]), t.most)
		if t.most == 0 {
			limit = exactly * math.Abs(terms[i])
		}
		rounded := math.Abs(want[i])
		if t.rows {
			squares, begin := 0.0, i/row*row
			for _, x := range want[begin : begin+row] {
				squares += x * x
			}
			rounded += 4 * math.Sqrt(squares/float64(row))
		}
		check.within(got, want[i], limit+unit(x.elements)*rounded)
	}
}

// picked reads the numbers at places of an operand. Places less than a window apart are read
// together.
func (g *gpu) picked(x operand, at []int) []float64 {
	numbers := make([]float64, 0, len(at))
	for len(at) > 0 {
		n := 1
		for n < len(at) && at[n] > at[n-1] && at[n]-at[n-1] <= window {
			n++
		}
		all := g.values(x.mem, at[0], at[n-1]-at[0]+1, x.elements)
		for _, place := range at[:n] {
			numbers = append(numbers, all[place-at[0]])
		}
		at = at[n:]
	}
	return numbers
}

// referenced returns the operands after a call of package ref on the host.
func referenced(c kernel.Call, given map[string][]float64, lists map[string][]int32, number func(float64) float64) map[string][]float64 {
	after := map[string][]float64{}
	for i, p := range c.Op.Of().Operands {
		c.Mem[i] = none
		if list := lists[p.Name]; list != nil {
			c.Mem[i] = tensor.From(list)
		} else if x := given[p.Name]; x != nil && p.Kind != kernel.Master {
			y := make([]float64, len(x))
			for j := range x {
				y[j] = number(x[j])
			}
			after[p.Name], c.Mem[i] = y, tensor.From(y)
		}
	}
	stream := devcpu.New(device.NewWall()).NewStream()
	defer stream.Close()
	ref.New(tensor.F64).Run(stream, c)
	return after
}

// checkLoss checks the sum of the losses of n rows, against the statistics of the rows: their
// largest logits, the sums of exponentials, and the logits of the targets.
func (g *gpu) checkLoss(check *checker, loss, stats operand, n int) {
	got, sum := g.values(stats.mem, 0, 3*n, tensor.F64), 0.0
	for i := range n {
		sum += math.Log(got[n+i]) + got[i] - got[2*n+i]
	}
	check.within(g.values(loss.mem, 0, 1, tensor.F64)[0], sum, tolerance*sum)
}
