package launch

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
	"dynmo/src/train"
)

// TestWatchTellsOnce: one rank of a host reports why the run ends. The others end with the same
// status, without a report.
func TestWatchTellsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock jumps over the waits
		ranks, board := local.World(3), comm.NewBoard(3)
		board.Post(2).Enter(7, comm.RoomMigrate)
		var told []string
		var statuses []int
		exit := func(status int) { statuses = append(statuses, status); runtime.Goexit() }
		for rank, err := range []error{errors.New("step 7: no memory"), fmt.Errorf("step 7: recv: %w", &comm.GoneError{Peer: ranks[0].Peer(0)})} {
			w := newWatch(config.Default(), ranks[rank], board, Hooks{Fail: func(err error) int { told = append(told, err.Error()); return 3 }})
			go w.end(err, exit)
			synctest.Wait()
		}
		time.Sleep(2 * grace)
		synctest.Wait()
		if len(told) != 1 || !strings.HasPrefix(told[0], "rank 0 (host ") || !strings.HasSuffix(told[0], "): step 7: no memory") {
			t.Errorf("told %q", told)
		}
		if fmt.Sprint(statuses) != "[3 1]" {
			t.Errorf("statuses %v", statuses)
		}
	})
}

// TestWatchExplains: the report of another rank's end names that rank's last activity.
func TestWatchExplains(t *testing.T) {
	ranks, board := local.World(2), comm.NewBoard(2)
	board.Post(1).Enter(7, comm.RoomMigrate)
	w := newWatch(config.Default(), ranks[0], board, Hooks{})
	got := w.explain(fmt.Errorf("step 7: recv: %w", &comm.GoneError{Peer: comm.Peer{World: 1, Host: "h", PID: 17}})).Error()
	if want := "rank 1 (host h, pid 17) is gone, in step 7: migrate; rank 0 was in its start"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// stuck is an observer whose third step does not end until freed is closed.
type stuck struct {
	run
	freed chan struct{}
}

func (s *stuck) Step(m record.Metrics) error {
	if m.Step == 2 {
		<-s.freed
	}
	return nil
}

// TestWatchOfGoroutines: a stuck rank that is a goroutine, as in a kernel that never ends, is
// reported.
func TestWatchOfGoroutines(t *testing.T) {
	c := small(t)
	c.Parallel.Stages, c.Train.Steps, c.Comm.StallSeconds = 2, 5, 2
	s := &stuck{freed: make(chan struct{})}
	var told string
	_, err := Launch(c, Hooks{
		Stop:  func() bool { return false },
		Begin: func(World) (record.Observer, error) { return s, nil },
		End:   func(train.Outcome) {},
		Fail:  func(err error) int { told = err.Error(); return 1 },
		Exit:  func(int) { close(s.freed); runtime.Goexit() },
	})
	expect.OK(t, err)
	for _, want := range []string{"no rank of this host got on for 2s: rank 0 (pid ", ") waits for no other\nrank 0 (pid ",
		"): step 2: record\nrank 1 (pid ", ", waits for rank 0"} {
		if !strings.Contains(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
}

func TestShare(t *testing.T) {
	expect.OK(t, local.Run(3, func(tr comm.Transport) error {
		world := comm.New(tr, comm.Options{})
		board, err := share(world)
		if err != nil {
			return err
		}
		board.Post(tr.Rank()).Enter(tr.Rank(), comm.RoomUpdate)
		if err := world.Barrier(); err != nil {
			return err
		}
		for rank := range 3 {
			if got, want := board.Post(rank).String(), fmt.Sprintf("step %d: update", rank); got != want {
				return fmt.Errorf("rank %d shows %q, want %q", rank, got, want)
			}
		}
		return nil
	}))
}
