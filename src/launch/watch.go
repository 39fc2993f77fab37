package launch

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/comm"
	"dynmo/src/config"
)

// watch watches the ranks of this host, and ends this process if a rank is gone or no rank makes
// progress. Only one rank of the host reports the cause.
type watch struct {
	t     comm.Transport
	board *comm.Board
	hooks Hooks         // Fail and Exit
	halt  time.Duration // longest time for which a stopped rank may delay the others
	once  sync.Mutex    // locked for ever by the call that ends the process
	stop  chan struct{}
}

// newWatch returns the watch of the process that t's rank is in.
func newWatch(c config.Config, t comm.Transport, b *comm.Board, h Hooks) *watch {
	halt := time.Duration(c.Comm.StallSeconds * float64(time.Second))
	return &watch{t: t, board: b, hooks: h, halt: halt, stop: make(chan struct{})}
}

// run watches until the watch is stopped.
func (w *watch) run() {
	look := comm.NewWatch(w.t, w.board)
	look.Stopped = w.halt
	tick := time.NewTicker(comm.WatchEvery)
	defer tick.Stop()
	// Open MPI's mpirun sends SIGCONT to the others when a rank has died, and kills them half a
	// second later (version 5 and 6).
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		case <-continued:
		}
		if err := look.Look(time.Now()); err != nil {
			w.end(err, w.hooks.Exit) // the rank's own goroutine may be inside MPI
		}
	}
}

// end reports an error, unless a rank of this host has reported one. Then it calls exit, which does
// not return. Only the first call has an effect.
func (w *watch) end(err error, exit func(status int)) {
	w.once.Lock()
	me := w.t.Peer(w.t.Rank())
	if !w.board.Claim(me.World) {
		time.Sleep(grace) // the rank that reports ends the world meanwhile
		exit(1)
	}
	exit(w.hooks.Fail(w.explain(err)))
}

// explain adds this rank to an error. If the error is the end of another rank, it names that rank
// and its last activity first.
func (w *watch) explain(err error) error {
	me := w.t.Peer(w.t.Rank())
	dead, ok := errors.AsType[*comm.GoneError](err)
	if !ok {
		return fmt.Errorf("rank %d (host %s): %w", me.World, me.Host, err)
	}
	return fmt.Errorf("%v is %w, in %v; rank %d was in %v", dead.Peer, comm.ErrGone, w.board.Post(dead.Peer.World), me.World, w.board.Post(me.World))
}

// share returns the board of the ranks of this host, in memory of their first rank. If the system
// denies a rank access to that memory, the rank gets its own board. Collective.
func share(world *comm.Group) (*comm.Board, error) {
	first, number := 0, -1
	for world.Peer(first).Host != world.Peer(world.Rank()).Host {
		first++
	}
	board := comm.NewBoard(world.Size())
	if first == world.Rank() {
		if shared, n, err := comm.ShareBoard(world.Size()); err == nil {
			board, number = shared, n
		}
	}
	all, err := world.Allgather(strconv.AppendInt(nil, int64(number), 10))
	if err != nil || first == world.Rank() {
		return board, err
	}
	if number, err = strconv.Atoi(string(all[first])); err != nil {
		return board, err
	}
	if shared, err := comm.OpenBoard(world.Peer(first).PID, number, world.Size()); err == nil {
		board = shared
	}
	return board, nil
}
