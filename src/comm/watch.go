package comm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Watch looks after the ranks of a host while they are busy or stopped themselves.
// Of a host's ranks the first that runs looks; the others look only whether it does.
type Watch struct {
	board *Board
	peers []Peer // of this host, by rank in the world
	rank  int    // in the world, of this process
	state func(pid int) state

	// Stopped is how long a rank that is stopped may hold the others up, before the first
	// step too. Their patience, which allows for long work, does not matter then.
	Stopped time.Duration

	beats  uint64    // of all ranks, as of the last change
	since  time.Time // of that change
	looked time.Time
}

// WatchEvery is the time between two looks.
const WatchEvery = watchEvery

const (
	// After asleep between two looks this process itself did not run. Then all ranks may have
	// been stopped, and their silence says nothing.
	asleep = 25 * WatchEvery
	// otherHost extends the timeout when every rank of this host waits for another rank. Then
	// another host has the stuck rank, and reports it first.
	otherHost = 10 * time.Second
)

// NewWatch returns the watch of a rank of the world t over the ranks of its host.
func NewWatch(t Transport, b *Board) *Watch {
	me := t.Peer(t.Rank())
	w := &Watch{board: b, rank: me.World, state: stateOf}
	for rank := range t.Size() {
		if p := t.Peer(rank); p.Host == me.Host {
			w.peers = append(w.peers, p)
		}
	}
	return w
}

// Look returns a *GoneError if a rank of the host has ended without saying so. If no rank makes
// progress any more it returns an error with the state of every rank.
func (w *Watch) Look(now time.Time) error {
	states := make([]state, len(w.peers))
	beats, patience := uint64(0), time.Duration(0)
	for i, p := range w.peers {
		post := w.board.Post(p.World)
		states[i] = w.state(p.PID)
		if p.World < w.rank && states[i] == running && post.state.Load() == postRuns {
			w.looked = time.Time{} // that rank looks
			return nil
		}
		beats += post.beats.Load()
		patience = max(patience, time.Duration(post.patience.Load()))
	}
	for i, p := range w.peers {
		if shows := w.board.Post(p.World).state.Load(); states[i] == gone && (shows == postRuns || shows == postParked) {
			return gonePeer(p)
		}
	}
	culprits := w.stopped(states)
	if beats != w.beats || now.Sub(w.looked) > asleep || culprits == "" && !w.anyRuns() {
		w.beats, w.since = beats, now
	}
	w.looked = now
	if culprits != "" {
		patience = w.Stopped
	} else if culprits = w.busy(); culprits == "" {
		culprits, patience = "each waits for another", patience+otherHost
	}
	if patience == 0 || now.Sub(w.since) < patience {
		return nil
	}
	return w.stalled(patience, culprits)
}

// anyRuns reports whether a rank of the host is in a step.
func (w *Watch) anyRuns() bool {
	return slices.ContainsFunc(w.peers, func(p Peer) bool { return w.board.Post(p.World).state.Load() == postRuns })
}

// stopped names the ranks that are stopped and others may wait for.
func (w *Watch) stopped(states []state) string {
	var list []string
	for i, p := range w.peers {
		if states[i] == halted && w.board.Post(p.World).state.Load() < postParked {
			list = append(list, fmt.Sprintf("rank %d (pid %d) is stopped", p.World, p.PID))
		}
	}
	return strings.Join(list, ", ")
}

// busy names the ranks that wait for none.
func (w *Watch) busy() string {
	var list []string
	for _, p := range w.peers {
		if post := w.board.Post(p.World); post.state.Load() == postRuns && post.peer.Load() == 0 {
			list = append(list, fmt.Sprintf("rank %d (pid %d) waits for no other", p.World, p.PID))
		}
	}
	return strings.Join(list, ", ")
}

// stalled returns the error of ranks that have done nothing new for so long: a line
// for each.
func (w *Watch) stalled(quiet time.Duration, culprits string) error {
	lines := []string{fmt.Sprintf("no rank of this host got on for %v: %s", quiet, culprits)}
	for _, p := range w.peers {
		if post := w.board.Post(p.World); post.state.Load() == postRuns {
			lines = append(lines, fmt.Sprintf("rank %d (pid %d): %v", p.World, p.PID, post))
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}
