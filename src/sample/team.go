package sample

import (
	"sync"
	"sync/atomic"
)

// team is how many threads share the work of a call.
type team int

// share calls do with ranges of [0, n), grain of them at most, on all threads. A
// thread that is free takes the next range, so that one that was disturbed holds
// up no other.
func (t team) share(n, grain int, do func(lo, hi int)) {
	var next atomic.Int64
	take := func() {
		for {
			lo := int(next.Add(int64(grain))) - grain
			if lo >= n {
				return
			}
			do(lo, min(lo+grain, n))
		}
	}
	var group sync.WaitGroup
	for range min(int(t), (n+grain-1)/grain) - 1 {
		group.Go(take)
	}
	take()
	group.Wait()
}
