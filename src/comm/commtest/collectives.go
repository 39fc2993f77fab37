package commtest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"dynmo/src/comm"
)

// collectives: every root, empty data, lengths that differ by rank, and data that
// does not fit into one frame.
func collectives(t comm.Transport) error {
	g := comm.New(t, quick())
	for root := range g.Size() {
		for _, length := range []int64{0, 5, 100000} {
			var data []byte
			if g.Rank() == root {
				data = pattern(root, 0, 0, length)
			}
			got := Value(g.Bcast(root, data))
			if string(got) != string(pattern(root, 0, 0, length)) {
				return fmt.Errorf("bcast of %d bytes from rank %d: received others", length, root)
			}
		}
		all := Value(g.Gather(root, contribution(g.Rank())))
		if g.Rank() != root {
			if all != nil {
				return fmt.Errorf("gather: rank %d is not the root, and got something", g.Rank())
			}
		} else if err := checkContributions(all, g.Size()); err != nil {
			return fmt.Errorf("gather: %w", err)
		}
	}
	all := Value(g.Allgather(contribution(g.Rank())))
	if err := checkContributions(all, g.Size()); err != nil {
		return fmt.Errorf("allgather: %w", err)
	}
	for range 20 {
		Must(g.Barrier())
	}
	return nil
}

// contribution is a rank's data for a gather: none of rank 0, then more and more.
func contribution(rank int) []byte { return pattern(rank, rank, 0, int64(rank)*333) }

func checkContributions(all [][]byte, size int) error {
	if len(all) != size {
		return fmt.Errorf("%d parts from %d ranks", len(all), size)
	}
	for rank, part := range all {
		if string(part) != string(contribution(rank)) {
			return fmt.Errorf("part of rank %d has %d bytes and is not what was given", rank, len(part))
		}
	}
	return nil
}

// allreduceOrder: operations whose result shows the order; it must be the left
// fold by rank, to the bit, everywhere.
func allreduceOrder(t comm.Transport) error {
	g := comm.New(t, quick())

	// 31a + b is neither commutative nor associative.
	digits := make([]int64, 256)
	for i := range digits {
		digits[i] = int64(i + g.Rank())
	}
	Must(comm.Allreduce(g, digits, func(a, b int64) int64 { return 31*a + b }))
	for i, got := range digits {
		want := int64(i)
		for rank := 1; rank < g.Size(); rank++ {
			want = 31*want + int64(i+rank)
		}
		if got != want {
			return fmt.Errorf("int64 %d: %d, want %d", i, got, want)
		}
	}

	// Rounding: the sum of these depends on the order.
	term := func(i, rank int) float64 { return math.Ldexp(1/float64(3+i+rank), (7*rank+i)%60) }
	sums := make([]float64, 33)
	for i := range sums {
		sums[i] = term(i, g.Rank())
	}
	Must(comm.Allreduce(g, sums, func(a, b float64) float64 { return a + b }))
	for i, got := range sums {
		want := term(i, 0)
		for rank := 1; rank < g.Size(); rank++ {
			want += term(i, rank)
		}
		if math.Float64bits(got) != math.Float64bits(want) {
			return fmt.Errorf("float64 %d: %x, want %x", i, got, want)
		}
	}

	Must(comm.Allreduce(g, []uint64{}, func(a, b uint64) uint64 { return a | b }))
	highest := []uint64{uint64(g.Rank())}
	Must(comm.Allreduce(g, highest, func(a, b uint64) uint64 { return max(a, b) }))
	if highest[0] != uint64(g.Size()-1) {
		return fmt.Errorf("uint64: %d, want %d", highest[0], g.Size()-1)
	}
	return nil
}

// split: two colors, ranks reversed by key; messages with one tag in the parent
// and the part do not meet; a part splits again; parts close before the parent.
func split(t comm.Transport) error {
	g := comm.New(t, quick())
	part := Value(g.Split(g.Rank()%2, -g.Rank()))
	size := (g.Size() + 1 - g.Rank()%2) / 2
	if part.Size() != size || part.Rank() != size-1-g.Rank()/2 {
		return fmt.Errorf("rank %d is %d of %d in its part, want %d of %d",
			g.Rank(), part.Rank(), part.Size(), size-1-g.Rank()/2, size)
	}
	for rank := range size {
		if got, want := part.Peer(rank), g.Peer((size-1-rank)*2+g.Rank()%2); got != want {
			return fmt.Errorf("rank %d of the part is %+v, want %+v", rank, got, want)
		}
	}
	above, below := neighbours(g)
	up, down := neighbours(part)
	inParent, inPart := onGroup(g), onGroup(part)
	inParent.recv(below, 7, 0, 100)
	inPart.recv(down, 7, 1, 100)
	inPart.send(up, 7, 1, 100)
	inParent.send(above, 7, 0, 100)
	Must(errors.Join(inParent.finish(), inPart.finish()))
	single := Value(part.Split(part.Rank(), 0))
	if single.Size() != 1 || single.Rank() != 0 || single.Peer(0) != g.Peer(g.Rank()) {
		return fmt.Errorf("a part of one: rank %d of %d, %+v", single.Rank(), single.Size(), single.Peer(0))
	}
	for _, closing := range []*comm.Group{single, part} {
		Must(closing.Barrier())
		Must(closing.Close())
	}
	return g.Barrier()
}

// Leave makes the last rank leave the world by a split in which it is outside,
// after which it returns. The others form a group that sends messages, splits
// again and closes without it. Ranks that are all outside form no group.
func Leave(t comm.Transport) error { return guarded(func() error { return leave(t) }) }

func leave(t comm.Transport) error {
	g := comm.New(t, quick())
	if none, err := g.Split(comm.Outside, 0); none != nil || err != nil {
		return fmt.Errorf("all ranks outside: %v, %w", none, err)
	}
	size := g.Size() - 1
	color := 3
	if g.Rank() == size {
		color = comm.Outside
	}
	rest := Value(g.Split(color, -g.Rank()))
	if g.Rank() == size {
		if rest != nil {
			return fmt.Errorf("a rank outside is rank %d of %d", rest.Rank(), rest.Size())
		}
		return nil
	}
	if rest.Size() != size || rest.Rank() != size-1-g.Rank() {
		return fmt.Errorf("rank %d is %d of %d in the rest, want %d of %d", g.Rank(), rest.Rank(), rest.Size(), size-1-g.Rank(), size)
	}
	time.Sleep(10 * time.Millisecond) // enough for the rank outside to return
	Must(ring([]int64{0, 8, 100_000})(onGroup(rest)))
	highest := []int64{int64(g.Rank())}
	Must(comm.Allreduce(rest, highest, func(a, b int64) int64 { return max(a, b) }))
	if highest[0] != int64(size-1) {
		return fmt.Errorf("the highest rank of the rest is %d, want %d", highest[0], size-1)
	}
	part := Value(rest.Split(rest.Rank()%2, 0))
	return errors.Join(part.Barrier(), part.Close(), rest.Barrier(), rest.Close())
}
