package comm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Watch finds ranks of this host that have died or are stuck, also while this rank is busy or inside
// MPI. A goroutine of every process calls Look every WatchEvery. Only the lowest running rank of the
// host examines the others. The other ranks only check that a lower rank runs.
type Watch struct {
	board *Board
	peers []Peer // of this host, by rank in the world
	rank  int    // in the world, of this process
	state func(pid int) state

	// Stopped is how long a rank may be stopped (by SIGSTOP or a debugger) while no rank of the host
	// makes progress. It replaces Post.SetPatience if any rank is stopped.
	Stopped time.Duration

	ran   RunTime
	beats uint64        // sum of the beats of all posts at the last change
	since time.Duration // when this sum last changed, by ran
	looks bool          // whether the last Look examined the others; else another rank does
}

// WatchEvery is the time between two calls of Watch.Look, and between two looks of a wait for dead
// ranks of this host.
const WatchEvery = 200 * time.Millisecond

const (
	// remoteGrace extends the timeout when every rank of this host waits for another rank. Then
	// another host has the stuck rank, and reports it first.
	remoteGrace = 10 * time.Second
)

// NewWatch returns the Watch of this process. t is the Transport of the world. b is the board on
// which the ranks of this host show their state.
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

// Look returns a *GoneError if a rank of this host has ended without Post.Leave. If no rank of this
// host has shown anything new for the time of Post.SetPatience, it returns an error with the state of
// every rank. Only time counts in which this process ran. Look returns nil otherwise, and while a
// lower rank of this host looks.
func (w *Watch) Look(at time.Time) error {
	now := w.ran.At(at)
	states := make([]state, len(w.peers))
	beats, patience := uint64(0), time.Duration(0)
	for i, p := range w.peers {
		post := w.board.Post(p.World)
		states[i] = w.state(p.PID)
		if p.World < w.rank && states[i] == running && post.state.Load() == postRuns {
			w.looks = false // the lower rank looks
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
	if beats != w.beats || !w.looks || culprits == "" && !w.anyRuns() {
		w.beats, w.since = beats, now
	}
	w.looks = true
	if culprits != "" {
		patience = w.Stopped
	} else if culprits = w.busy(); culprits == "" {
		culprits, patience = "each waits for another", patience+remoteGrace
	}
	if patience == 0 || now-w.since < patience {
		return nil
	}
	return w.stalled(patience, culprits)
}

// anyRuns reports whether a rank of the host is in a step.
func (w *Watch) anyRuns() bool {
	return slices.ContainsFunc(w.peers, func(p Peer) bool { return w.board.Post(p.World).state.Load() == postRuns })
}

// stopped names the stopped ranks for which other ranks may wait.
func (w *Watch) stopped(states []state) string {
	var list []string
	for i, p := range w.peers {
		if states[i] == halted && w.board.Post(p.World).state.Load() < postParked {
			list = append(list, fmt.Sprintf("rank %d (pid %d) is stopped", p.World, p.PID))
		}
	}
	return strings.Join(list, ", ")
}

// busy names the ranks that wait for no other rank.
func (w *Watch) busy() string {
	var list []string
	for _, p := range w.peers {
		if post := w.board.Post(p.World); post.state.Load() == postRuns && post.peer.Load() == 0 {
			list = append(list, fmt.Sprintf("rank %d (pid %d) waits for no other", p.World, p.PID))
		}
	}
	return strings.Join(list, ", ")
}

// stalled returns the error that no rank of this host has made progress for the time quiet. It has
// one line for each rank.
func (w *Watch) stalled(quiet time.Duration, culprits string) error {
	lines := []string{fmt.Sprintf("no rank of this host got on for %v: %s", quiet, culprits)}
	for _, p := range w.peers {
		if post := w.board.Post(p.World); post.state.Load() == postRuns {
			lines = append(lines, fmt.Sprintf("rank %d (pid %d): %v", p.World, p.PID, post))
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}
