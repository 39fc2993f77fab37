package place

import "slices"

// Dealer deals blocks of rows to the replicas that hold their experts. The zero value is
// ready. It keeps memory from one deal to the next.
type Dealer struct {
	Loads []int64 // by replica: the rows that the last deal gave it

	shares [][]int64 // by expert and holder
	flat   []int64   // the memory of shares
	order  []int     // experts with copies
	before []int64   // shares of an expert before pour
	sorted []int64   // loads of an expert's holders
}

// sweeps is how often Deal goes over the experts with copies. Each sweep is exact for one
// expert at a time. With 256 experts on 64 replicas, Zipf 1, the fullest replica has 1.086 times
// the mean after 2 sweeps, 1.060 after 4 and 1.044 after 12 (TestPlace).
const sweeps = 4

// Deal returns for each expert how many of its blocks each of its holders works on, in the
// order of the map. rows is by expert; a block is so many rows, the last one of an expert
// maybe fewer. Holders take consecutive blocks: the first holder the first ones, and so on.
//
// The rows of the fullest replica are about as few as the map allows: Deal goes over the
// experts with copies, and gives the blocks of one after the other to the emptiest of its
// holders while the others stay. The answer depends on the arguments alone. It is valid until
// the next call.
func (d *Dealer) Deal(m Map, rows []int, block, replicas int) [][]int64 {
	d.prepare(m, replicas)
	for e, on := range m {
		if len(on) == 1 {
			d.shares[e][0] = int64((rows[e] + block - 1) / block)
			d.Loads[on[0]] += int64(rows[e])
		}
	}
	for sweep := range sweeps {
		changed := false
		for _, e := range d.order {
			if d.pour(m[e], d.shares[e], int64(rows[e]), int64(block), sweep > 0) {
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	return d.shares
}

// prepare empties all shares, and lists the experts with copies.
func (d *Dealer) prepare(m Map, replicas int) {
	n := 0
	d.order = d.order[:0]
	for e, on := range m {
		n += len(on)
		if len(on) > 1 {
			d.order = append(d.order, e)
		}
	}
	d.Loads = slices.Grow(d.Loads[:0], replicas)[:replicas]
	d.flat = slices.Grow(d.flat[:0], n)[:n]
	clear(d.Loads)
	clear(d.flat)
	d.shares = d.shares[:0]
	at := 0
	for _, on := range m {
		d.shares = append(d.shares, d.flat[at:at+len(on):at+len(on)])
		at += len(on)
	}
}

// pour gives the blocks of an expert to its holders, and reports whether shares changed. Where
// it is done again, the shares of before are taken back first.
func (d *Dealer) pour(on []int, shares []int64, rows, block int64, again bool) (changed bool) {
	blocks := (rows + block - 1) / block
	short := blocks*block - rows // rows that the last block lacks
	if again {
		d.add(on, shares, -block, -short)
	}
	before := append(d.before[:0], shares...)
	d.before = before
	level := d.level(on, blocks*block)
	left := blocks
	for i, replica := range on {
		shares[i] = max(0, (level-d.Loads[replica])/block)
		left -= shares[i]
	}
	for ; left > 0; left-- {
		least, lowest := 0, int64(0)
		for i, replica := range on {
			if full := d.Loads[replica] + shares[i]*block; i == 0 || full < lowest {
				least, lowest = i, full
			}
		}
		shares[least]++
	}
	d.add(on, shares, block, short)
	return !slices.Equal(before, shares)
}

// add adds the rows of shares of blocks to the loads. The last block lacks short rows.
func (d *Dealer) add(on []int, shares []int64, block, short int64) {
	last := -1
	for i, replica := range on {
		d.Loads[replica] += shares[i] * block
		if shares[i] > 0 {
			last = on[i]
		}
	}
	if last >= 0 {
		d.Loads[last] -= short
	}
}

// level returns how full the emptiest of some replicas are when they take so many rows, any
// number each: the largest whole level with Σ max(0, level - load) <= rows.
func (d *Dealer) level(on []int, rows int64) int64 {
	d.sorted = d.sorted[:0]
	for _, replica := range on {
		d.sorted = append(d.sorted, d.Loads[replica])
	}
	slices.Sort(d.sorted)
	sum := rows
	for i, load := range d.sorted {
		sum += load
		n := int64(i + 1)
		if i+1 == len(d.sorted) || sum <= d.sorted[i+1]*n {
			return sum / n
		}
	}
	return 0
}
