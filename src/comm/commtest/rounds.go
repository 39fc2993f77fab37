package commtest

import (
	"bytes"
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// rounder is a Group with memory of one kind for its rounds.
type rounder struct {
	*comm.Group
	memory  func(bytes int64) tensor.Mem
	write   func(m tensor.Mem, data []byte)
	ready   func() device.Event // behind what was written
	compare func(m tensor.Mem, want []byte) error
}

// onHostMemory returns a group as a rounder of host memory.
func onHostMemory(g *comm.Group) rounder {
	return rounder{
		Group:  g,
		memory: func(bytes int64) tensor.Mem { return Value(g.Alloc(bytes)) },
		write:  func(m tensor.Mem, data []byte) { copy(tensor.Of[byte](m), data) },
		ready:  func() device.Event { return nil },
		compare: func(m tensor.Mem, want []byte) error {
			if !bytes.Equal(tensor.Of[byte](m), want) {
				return errors.New("received other bytes than were sent")
			}
			return nil
		},
	}
}

// exchangeRounds: several rounds are under way at once with one tag. Their messages arrive in the
// order of their parts, with any other ranks in the round and any order in which a rank names them.
// Parts without bytes carry nothing, a rank without parts leaves the round out, and a round that
// was waited for stays done.
func exchangeRounds(g rounder) error {
	const rounds = 4
	length := func(from, to, round, k int) int64 { return int64((from+2*to+3*round+5*k)%7) * 700 }
	takesPart := func(rank, round int) bool { return round != 2 || rank != g.Size()-1 }
	var old comm.Round
	for repeat := range 2 {
		var all [rounds]comm.Round
		var received [rounds][]comm.Part
		for round := range rounds {
			if !takesPart(g.Rank(), round) {
				continue
			}
			var sends []comm.Part
			for i := 1; i < g.Size(); i++ {
				to, from := (g.Rank()+i)%g.Size(), (g.Rank()+g.Size()-i)%g.Size()
				for k := range 3 {
					if takesPart(to, round) {
						m := g.memory(length(g.Rank(), to, round, k))
						g.write(m, pattern(g.Rank(), to, 10*round+k, m.Bytes))
						sends = append(sends, comm.Part{Rank: to, Mem: m})
					}
					if takesPart(from, round) {
						received[round] = append(received[round], comm.Part{Rank: from, Mem: g.memory(length(from, g.Rank(), round, k))})
					}
				}
			}
			all[round] = Value(g.Exchange(comm.TagReduce, sends, received[round], g.ready()))
		}
		if done, err := old.Test(); !done || err != nil || old.Wait() != nil {
			return fmt.Errorf("a round of the past: %v, %v", done, err)
		}
		for round := range rounds {
			if round == 1 { // asked before it is waited for
				for done := false; !done; {
					done = Value(all[round].Test())
				}
			}
			Must(all[round].Wait())
			count := make(map[int]int)
			for _, p := range received[round] {
				want := pattern(p.Rank, g.Rank(), 10*round+count[p.Rank], p.Mem.Bytes)
				if err := g.compare(p.Mem, want); err != nil {
					return fmt.Errorf("repeat %d, round %d, from rank %d: %w", repeat, round, p.Rank, err)
				}
				count[p.Rank]++
			}
		}
		old = all[0]
	}
	return nil
}
