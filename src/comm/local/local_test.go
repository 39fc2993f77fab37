package local

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

func TestSuite(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		for _, c := range commtest.Cases() {
			t.Run(fmt.Sprintf("n=%d/%s", n, c.Name), func(t *testing.T) {
				t.Parallel()
				if err := Run(n, c.Run); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, bytes := range []int64{8, 4 << 10, 64 << 10, 8 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", bytes), func(b *testing.B) {
			b.SetBytes(2 * bytes) // one iteration is there and back
			b.ReportAllocs()
			err := Run(2, func(t comm.Transport) error {
				g := comm.New(t, comm.Options{})
				out, in := tensor.From(make([]byte, bytes)), tensor.From(make([]byte, bytes))
				_, err := comm.PingPong(g, 1-g.Rank(), out, in, b.N)
				return err
			})
			expect.OK(b, err)
		})
	}
}
