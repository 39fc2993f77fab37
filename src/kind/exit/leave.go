package exit

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// live chooses the tokens that have not departed.
func live(_ *model.Exec, b *model.Batch, _ tensor.Mem, rows []int32) (int, error) {
	for i := range b.Queries {
		rows[i] = int32(i)
	}
	return b.Queries, nil
}

// mark adds to an Index, of the tokens that go on, those that leave now and those that have
// departed, and returns how many it has then.
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
