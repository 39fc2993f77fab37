package exit

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Counts is a reading of an exit. Its values are: the tokens that entered; those that left; those
// of these whose target had the largest logit; the probes; those of these whose target had the
// largest logit. Then come the sums of the losses of probes, and of the tokens that left, in
// thousandths of a nat.
const (
	Counts     = "exit"
	exitCounts = 7
)

// aroundCounts is a reading of an exit: the threshold in billionths, and how many tokens
// would have left if each of Offsets had been added to it.
const (
	aroundCounts = "exit.around"
	exitAround   = 1 + 2*exitReach + 1

	exitReach = 12 // so that the smallest offset is a fraction of a token's share
)

// ThresholdUnit is what a threshold is multiplied by in Around.
const thresholdUnit = 1e9

// Offsets are from 1/2 down to -1/2: each half as far from 0 as the one before,
// then 0, then back.
var offsets = func() (list [exitAround - 1]float64) {
	for i := range exitReach {
		far := math.Ldexp(1, -1-i)
		list[i], list[len(list)-1-i] = far, -far
	}
	return list
}()

// departure is the Work of an exit: the tokens that go on, and what the host knows of the
// microbatch from its forward to its backward. Its slices have room for a full microbatch,
// and are made for the first.
type departure struct {
	*model.Subset
	key        uint64    // of the microbatch's data
	came       int       // tokens that entered and had not departed
	data       []int32   // targets of those that entered
	confidence []float64 // of those
	rows       []int32   // of those: which have a loss here: which leave, ascending, then the probes, ascending
	left       int       // of rows
	found      []int32   // by row of rows: the target, then its label
	likeliest  []int32   // by row of rows: the token with the exit's largest logit, where labels are the last layer's
	last       []int32   // by token that enters: the last layer's; see Learn
	ones       []int32
	places     []int32    // 0, 1, …
	factors    tensor.Mem // by row of rows: the weight of the classifier's loss, wide
	stats      []float64  // of a softmax: (3, n)
	states     []byte     // of the tokens that entered, where the confidence is made of them
	counts     [exitCounts]float64
	around     [exitAround]float64
	pcg        rand.PCG
}

// departureOf returns the Work of the exit that b enters.
func departureOf(b *model.Batch) *departure { return b.Work.(*departure) }

// Enter returns b as it enters the exit.
func (d *departure) Enter(b *model.Batch) *model.Batch {
	if d.data == nil {
		n := d.X.N()
		d.data, d.confidence, d.rows = make([]int32, n), make([]float64, n), make([]int32, 0, n)
		d.found, d.ones, d.stats = make([]int32, n), make([]int32, n), make([]float64, 3*n)
		d.places, d.likeliest = make([]int32, n), make([]int32, n)
		for i := range d.ones {
			d.ones[i], d.places[i] = 1, int32(i)
		}
		d.factors = tensor.From(make([]float32, n))
		if d.X.Backend.DType().Wide() == tensor.F64 {
			d.factors = tensor.From(make([]float64, n))
		}
	}
	return d.EnterBy(b, d)
}

// Feed notes the targets of the tokens that are there, and a key of all of the microbatch.
func (d *departure) Feed(b *model.Batch, targets []int32) {
	h := fnv.New64a()
	h.Write(tensor.Of[byte](tensor.From(targets)))
	d.key, d.came = h.Sum64(), b.Queries
	copy(d.data, b.Pick(targets))
}

// read waits for statistics of a softmax and notes them.
func (d *departure) read(x *model.Exec, stats tensor.Mem) error {
	x.Stream.Copy(tensor.From(d.stats[:stats.Bytes/8]), stats)
	return x.Stream.Sync()
}

// decide notes which tokens leave and which are probes, and makes the batch of those that
// go on. It depends on the microbatch's data and the layer only.
func (d *departure) decide(b *model.Batch, e *exit) error {
	index, err := d.Room()
	if err != nil {
		return err
	}
	goOn, n := tensor.Of[int32](index), 0
	d.rows = d.rows[:0]
	for i, confidence := range d.confidence[:d.came] {
		if confidence > e.Threshold && !e.staying() && !d.X.Stays {
			d.rows = append(d.rows, int32(i))
		} else {
			goOn[n] = int32(i)
			n++
		}
	}
	d.left = len(d.rows)
	switch {
	case e.staying():
		d.rows = append(d.rows, goOn[:n]...)
	case e.Weight > 0:
		random.Seed(&d.pcg, e.seed, uint64(e.number), d.key)
		for _, row := range goOn[:n] {
			if float64(d.pcg.Uint64()>>11)/(1<<53) < e.Probe {
				d.rows = append(d.rows, row)
			}
		}
	}
	d.count(e.Threshold)
	for i, row := range goOn[:n] {
		goOn[i] = b.At(int(row))
	}
	if e.Propagate && (n > 0 || d.X.Text != nil) {
		n = d.mark(b, goOn, n)
	}
	return d.Select(n)
}

// count notes the readings that follow from the confidences.
func (d *departure) count(threshold float64) {
	d.counts = [exitCounts]float64{float64(d.came), float64(d.left), 0, float64(len(d.rows) - d.left)}
	d.around = [exitAround]float64{math.Round(threshold * thresholdUnit)}
	for i, offset := range offsets {
		for _, confidence := range d.confidence[:d.came] {
			if confidence > threshold+offset {
				d.around[1+i]++
			}
		}
	}
}

// runs calls visit for the rows that lie together, in rows from at on and in what enters
// from first on.
func (d *departure) runs(visit func(at, first, count int)) {
	for at := 0; at < len(d.rows); {
		count := 1
		for at+count < len(d.rows) && d.rows[at+count] == d.rows[at]+int32(count) {
			count++
		}
		visit(at, int(d.rows[at]), count)
		at += count
	}
}

// targets returns those of rows, until tally.
func (d *departure) targets() []int32 {
	for i, row := range d.rows {
		d.found[i] = d.data[row]
	}
	return d.found[:len(d.rows)]
}

// tally notes of every row whether its target has the largest logit, and the readings that
// follow from that and from the probes' losses.
func (d *departure) tally() {
	found, loss := d.look(0, d.left)
	d.counts[2], d.counts[6] = float64(found), math.Round(1000*loss)
	found, loss = d.look(d.left, len(d.rows))
	d.counts[4], d.counts[5] = float64(found), math.Round(1000*loss)
}

// look goes through rows [lo, hi), whose statistics lie together.
func (d *departure) look(lo, hi int) (found int32, loss float64) {
	n, stats := hi-lo, d.stats[3*lo:3*hi]
	for i := range n {
		largest, sum, target := stats[i], stats[n+i], stats[2*n+i]
		loss += math.Log(sum) + largest - target
		d.found[lo+i] = 0
		if target == largest {
			d.found[lo+i] = 1
		}
		found += d.found[lo+i]
	}
	return found, loss
}

// live chooses the tokens that have not departed.
func live(_ *model.Exec, b *model.Batch, _ tensor.Mem, rows []int32) (int, error) {
	for i := range b.Queries {
		rows[i] = int32(i)
	}
	return b.Queries, nil
}

// mark adds marks to an Index of the tokens that go on: for the tokens that leave now and for those
// that have departed. It returns the length of the Index.
func (d *departure) mark(b *model.Batch, index []int32, tokens int) int {
	for _, row := range d.rows[:d.left] {
		index[tokens] = ^b.At(int(row))
		tokens++
	}
	for i := b.Queries; i < b.Tokens; i++ {
		index[tokens] = ^b.At(i)
		tokens++
	}
	return tokens
}

// move is copy of what leaves the exit: where states go on, of the tokens that go on, then
// of those that leave, then of those that have departed.
func (e *exit) move(x *model.Exec, b *model.Batch, copy func(some, all tensor.Mem), some, all tensor.Mem) {
	if !e.Propagate {
		e.CopyRows(x, b, copy, some, all)
		return
	}
	if b.Leaves().Tokens == 0 {
		return
	}
	d := departureOf(b)
	left := d.rows[:d.left]
	to, next := [2]int{0, b.Queries - d.left}, 0 // of the next token that goes on, that leaves
	for from := 0; from < b.Queries; {
		leaves, count := 0, 0
		if next < d.left && int(left[next]) == from {
			for leaves = 1; next < d.left && int(left[next]) == from+count; next++ {
				count++
			}
		} else {
			count = d.came - from
			if next < d.left {
				count = int(left[next]) - from
			}
		}
		copy(b.RowsFrom(some, to[leaves], count), b.RowsFrom(all, from, count))
		to[leaves], from = to[leaves]+count, from+count
	}
	if b.Queries < b.Tokens {
		copy(b.KeyRows(some), b.KeyRows(all))
	}
}
