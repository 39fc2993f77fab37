package local

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// A message allocates nothing, once as many as are ever under way together have
// been. It is no subtest: others would be counted too.
func TestMessagesAllocateNothing(t *testing.T) {
	const rounds = 100
	var per float64
	err := Run(2, func(tr comm.Transport) error {
		g := comm.New(tr, comm.Options{Piece: 1000})
		out, in := tensor.From(make([]byte, 2500)), tensor.From(make([]byte, 2500))
		parts := []comm.Part{{Rank: 1 - g.Rank()}, {Rank: 1 - g.Rank()}}
		var failed error
		exchange := func() {
			if failed == nil {
				_, failed = comm.PingPong(g, 1-g.Rank(), out, in, 3)
			}
			if failed == nil {
				failed = commtest.SwapUpTo(g, 1-g.Rank(), out.Span(0, 300), in.Span(0, 999))
			}
			if failed == nil {
				parts[0].Mem, parts[1].Mem = out, in
				failed = swapRound(g, parts[:1], parts[1:])
			}
		}
		if g.Rank() == 0 {
			per = testing.AllocsPerRun(rounds, exchange)
		} else {
			for range rounds + 1 {
				exchange()
			}
		}
		return failed
	})
	expect.OK(t, err)
	if per != 0 {
		t.Errorf("%v allocations in four messages and a round there and back", per)
	}
}

// swapRound sends and receives in a round.
func swapRound(g *comm.Group, sends, recvs []comm.Part) error {
	round, err := g.Exchange(3, sends, recvs, nil)
	if err != nil {
		return err
	}
	return round.Wait()
}
