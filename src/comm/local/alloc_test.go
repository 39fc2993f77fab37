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
		var failed error
		exchange := func() {
			if failed == nil {
				_, failed = comm.PingPong(g, 1-g.Rank(), out, in, 3)
			}
			if failed == nil {
				failed = commtest.SwapUpTo(g, 1-g.Rank(), out.Span(0, 300), in.Span(0, 999))
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
		t.Errorf("%v allocations in four messages there and back", per)
	}
}
