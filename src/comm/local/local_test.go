package local

import (
	"fmt"
	"testing"

	"dynmo/src/comm/commtest"
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
