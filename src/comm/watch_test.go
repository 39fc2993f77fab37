package comm

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/expect"
	"dynmo/src/trace"
)

// onHosts is a world whose ranks are on these hosts, with process ids 100 + rank.
func onHosts(hosts ...string) silent {
	var s silent
	for rank, host := range hosts {
		s.peers = append(s.peers, Peer{rank, host, 100 + rank})
	}
	return s
}

func TestWatch(t *testing.T) {
	const patience = time.Minute
	busy := func(b *Board) { b.Post(1).Do(trace.F, 5, 2) }
	early := func(b *Board) { // before the first step
		for rank := range 3 {
			b.Post(rank).state.Store(postEmpty)
			b.Post(rank).SetPatience(0)
		}
	}
	type world struct {
		states map[int]state // by process id; running where none is given
		board  func(*Board)  // what the ranks do before every look
		quiet  time.Duration // between the first and the last look, each a second after the other
		want   string        // of the error; empty: none
	}
	for name, c := range map[string]world{
		"all is well":        {nil, func(b *Board) { b.Post(2).Do(trace.B, -1, 0) }, time.Hour, ""},
		"nothing yet":        {nil, nil, patience - time.Second, ""},
		"one is gone":        {map[int]state{102: gone}, nil, 0, "rank 2 (host here, pid 102) is gone"},
		"one has left":       {map[int]state{102: gone}, func(b *Board) { b.Post(2).Leave(); b.Post(0).Enter(3, RoomUpdate) }, time.Hour, ""},
		"a parked one gone":  {map[int]state{102: gone}, func(b *Board) { b.Post(2).Park(3); b.Post(0).Enter(4, RoomUpdate) }, 0, "rank 2 (host here, pid 102) is gone"},
		"parked, stopped":    {map[int]state{101: halted}, func(b *Board) { b.Post(1).Park(3); b.Post(0).Enter(4, RoomUpdate) }, time.Hour, ""},
		"all are parked":     {nil, func(b *Board) { b.Post(0).Park(3); b.Post(1).Park(3); b.Post(2).Park(3) }, time.Hour, ""},
		"all have left":      {nil, func(b *Board) { b.Post(0).Leave(); b.Post(1).Leave(); b.Post(2).Leave() }, time.Hour, ""},
		"one elsewhere":      {map[int]state{103: gone}, func(b *Board) { b.Post(0).Enter(3, RoomUpdate) }, time.Hour, ""},
		"one is stopped":     {map[int]state{101: halted}, nil, patience / 2, "no rank of this host got on for 30s: rank 1 (pid 101) is stopped\nrank 0 (pid 100): step 3: pipeline, waits for rank 2\n"},
		"stopped early":      {map[int]state{101: halted}, early, patience / 2, "no rank of this host got on for 30s: rank 1 (pid 101) is stopped"},
		"early and slow":     {nil, early, time.Hour, ""},
		"stopped, has left":  {map[int]state{101: halted}, func(b *Board) { b.Post(1).Leave(); b.Post(0).Enter(3, RoomUpdate) }, time.Hour, ""},
		"one never ends":     {nil, nil, patience, "got on for 1m0s: rank 1 (pid 101) waits for no other\nrank 0 (pid 100): step 3: pipeline, waits for rank 2\nrank 1 (pid 101): step 3: pipeline: F2 of layer 5\n"},
		"all wait":           {nil, func(b *Board) { b.Post(1).peer.Store(4) }, patience + remoteGrace - time.Second, ""},
		"all wait, for long": {nil, func(b *Board) { b.Post(1).peer.Store(4) }, patience + remoteGrace, "got on for 1m10s: each waits for another\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBoard(4)
			for rank := range 4 {
				b.Post(rank).Enter(3, RoomPipeline)
				b.Post(rank).SetPatience(patience)
			}
			busy(b)
			b.Post(0).wait(2)
			b.Post(2).wait(0)
			w := NewWatch(onHosts("here", "here", "here", "there"), b)
			w.Stopped = patience / 2
			w.state = func(pid int) state { return c.states[pid] }
			now := time.Now()
			var err error
			for passed := time.Duration(0); passed <= c.quiet && err == nil; passed += time.Second {
				if c.board != nil {
					c.board(b)
				}
				err = w.Look(now.Add(passed))
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error()+"\n", c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, ok := errors.AsType[*GoneError](err); ok != strings.HasSuffix(c.want, "gone") {
				t.Errorf("%v is a GoneError: %v", err, ok)
			}
		})
	}
}

// The first rank that runs looks; a pause of the whole process is no stall.
func TestWatchTakesTurns(t *testing.T) {
	b := NewBoard(3)
	for rank := range 3 {
		b.Post(rank).Enter(0, RoomPipeline)
		b.Post(rank).SetPatience(time.Minute)
	}
	s := onHosts("here", "here", "here")
	w := NewWatch(s, b)
	w.rank = 1
	states := map[int]state{102: gone}
	w.state = func(pid int) state { return states[pid] }
	now := time.Now()
	expect.OK(t, w.Look(now)) // rank 0 looks
	states[100] = halted
	if err := w.Look(now); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone: rank 0 does not look", err)
	}
	delete(states, 102)
	expect.OK(t, w.Look(now))
	expect.OK(t, w.Look(now.Add(time.Hour)))
	expect.OK(t, w.Look(now.Add(2*time.Hour)))
}

func TestStateOf(t *testing.T) {
	_, commands := sleepers(t, 1)
	p := commands[0].Process
	expect.OK(t, p.Signal(unix.SIGSTOP))
	want := func(want state) {
		t.Helper()
		for began := time.Now(); stateOf(p.Pid) != want; time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("state %d, want %d", stateOf(p.Pid), want)
			}
		}
	}
	want(halted)
	expect.OK(t, p.Signal(unix.SIGCONT))
	want(running)
	expect.OK(t, p.Kill())
	want(gone)
}

// Processes of one host write into one board; one of them tells why the run ends.
func TestBoardIsShared(t *testing.T) {
	a, number, err := ShareBoard(3)
	expect.OK(t, err)
	b, err := OpenBoard(os.Getpid(), number, 3)
	expect.OK(t, err)
	if got := b.Post(2).String(); got != "its start" {
		t.Errorf("%q before the first step", got)
	}
	a.Post(2).Enter(1<<40, RoomMigrate)
	a.Post(2).wait(1)
	if got, want := b.Post(2).String(), "step 1099511627776: migrate, waits for rank 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	a.Post(0).Do(trace.Reduce, -1, -1)
	if !b.Claim(0) || a.Claim(1) || b.Claim(0) {
		t.Error("the run's end was claimed twice, or not at all")
	}
	if _, err := OpenBoard(os.Getpid(), 1<<20, 3); err == nil {
		t.Error("a board that nobody shares opens")
	}
}

// A rank writes on its post in every pass of a layer.
func TestPostAllocatesNothing(t *testing.T) {
	p := NewBoard(1).Post(0)
	if n := testing.AllocsPerRun(100, func() {
		p.Enter(3, RoomPipeline)
		p.Do(trace.F, 1, 2)
		p.wait(0)
		p.wait(-1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
