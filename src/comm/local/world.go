// Package local makes ranks goroutines of one process, for commands that are
// started alone and for tests of many ranks. A message is copied once, straight
// from the sender's memory to the receiver's.
package local

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"dynmo/src/comm"
)

// world is shared by all ranks and their groups.
type world struct {
	mu     sync.Mutex
	groups []*group
	failed chan struct{} // closed once a rank has failed
	cause  error         // set before failed is closed
}

// group is the part of the world that one communicator spans.
type group struct {
	world  *world
	peers  []comm.Peer
	boxes  []box // by receiving rank
	mu     sync.Mutex
	splits map[int]*split // by the number of splits before
	closed int            // ranks that have left
}

// member is one goroutine's side of a group: the comm.Transport of this package.
type member struct {
	group  *group
	rank   int
	splits int         // calls of Split so far
	idle   []*transfer // that can be used again
	alarm  *time.Timer // of Sleep; nil at first
}

// World returns the transports of a world of n ranks, one for each goroutine.
func World(n int) []comm.Transport {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost" // every rank has the same: all that is needed
	}
	peers := make([]comm.Peer, n)
	for rank := range peers {
		peers[rank] = comm.Peer{World: rank, Host: host, PID: os.Getpid()}
	}
	w := &world{failed: make(chan struct{})}
	g, _ := w.add(peers)
	ranks := make([]comm.Transport, n)
	for rank := range ranks {
		ranks[rank] = &member{group: g, rank: rank}
	}
	return ranks
}

// Run runs f on n ranks, each a goroutine locked to its OS thread, and returns
// when all have returned. The first rank to return an error fails the world,
// so that no other waits for it; that error is Run's.
func Run(n int, f func(t comm.Transport) error) error {
	ranks := World(n)
	var done sync.WaitGroup
	for _, t := range ranks {
		done.Go(func() {
			runtime.LockOSThread()
			// The error of a goroutine that ends without returning: a test's FailNow.
			err := errors.New("ended before it returned")
			defer func() {
				if err != nil {
					t.(*member).Fail(err)
				}
			}()
			err = f(t)
		})
	}
	done.Wait()
	return ranks[0].(*member).group.world.cause
}

// Fail ends the world: whatever another rank waits for now or later is an
// error that wraps err and names this rank. Only the first call counts.
func (r *member) Fail(err error) {
	r.group.world.fail(fmt.Errorf("rank %d: %w", r.group.peers[r.rank].World, err))
}

// Abort fails the world. The process goes on: its exit status is its own affair.
func (r *member) Abort(status int) {
	r.Fail(fmt.Errorf("aborted with status %d", status))
}

// add makes a group of the world, unless the world has failed.
func (w *world) add(peers []comm.Peer) (*group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return nil, w.cause
	}
	g := &group{world: w, peers: peers, boxes: make([]box, len(peers)), splits: map[int]*split{}}
	w.groups = append(w.groups, g)
	return g, nil
}

// remove forgets a group that all its ranks have closed.
func (w *world) remove(g *group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.groups {
		if other == g {
			w.groups = append(w.groups[:i], w.groups[i+1:]...)
			return
		}
	}
}

// fail drops every message that is not matched and then wakes all waiters. So no memory is read
// after its owner has seen the error.
func (w *world) fail(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return
	}
	w.cause = cause
	for _, g := range w.groups {
		for i := range g.boxes {
			g.boxes[i].shut(cause)
		}
	}
	close(w.failed)
}
