package comm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// silent is a transport between processes that never say anything.
type silent struct{ peers []Peer }

func (s silent) Rank() int                                           { return 0 }
func (s silent) Size() int                                           { return len(s.peers) }
func (s silent) Peer(rank int) Peer                                  { return s.peers[rank] }
func (s silent) Stamp(bool)                                          {}
func (s silent) Isend(int, int, tensor.Mem, float64) (Handle, error) { return s, nil }
func (s silent) Irecv(int, int, tensor.Mem) (Handle, error)          { return s, nil }
func (s silent) Test(time.Duration) (bool, Arrival, error)           { return false, Arrival{}, nil }
func (s silent) Alloc(bytes int64) (tensor.Mem, error)               { return tensor.From(make([]byte, bytes)), nil }
func (s silent) Free(tensor.Mem)                                     {}
func (s silent) Split(int, int) (Transport, error)                   { return s, nil }
func (s silent) Close() error                                        { return nil }
func (s silent) Abort(int)                                           {}

// sleepers returns a world of this process and some that sleep, on one host.
func sleepers(t *testing.T, others int) (silent, []*exec.Cmd) {
	t.Helper()
	s := silent{[]Peer{{0, "here", os.Getpid()}}}
	var commands []*exec.Cmd
	for i := range others {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		commands = append(commands, cmd)
		s.peers = append(s.peers, Peer{i + 1, "here", cmd.Process.Pid})
	}
	return s, commands
}

// waitFor receives from a rank, and kills a process after 50 ms if not nil. It returns the
// time from the kill, or the start, to the error, and the error.
func waitFor(t *testing.T, g *Group, from int, victim *os.Process) (time.Duration, error) {
	t.Helper()
	r, err := g.Recv(from, 0, tensor.From(make([]byte, 4096)), nil)
	expect.OK(t, err)
	var killed atomic.Int64
	killed.Store(time.Now().UnixNano())
	if victim != nil {
		time.AfterFunc(50*time.Millisecond, func() {
			killed.Store(time.Now().UnixNano())
			_ = victim.Kill() // not waited for: it stays a zombie, as under a busy launcher
		})
	}
	err = r.Wait()
	return time.Duration(time.Now().UnixNano() - killed.Load()), err
}

func TestWaitNamesTheDead(t *testing.T) {
	for name, c := range map[string]struct {
		victim      int // rank killed while rank 0 waits for rank 1
		interrupted bool
		within      time.Duration
		want        string
	}{
		"the peer":               {1, false, time.Second, "recv 4096 bytes from rank 1 (host here, pid %d): gone"},
		"another rank":           {2, false, time.Second, "rank 2 (host here, pid %d) is gone"},
		"asked to end, the peer": {1, true, 150 * time.Millisecond, "recv 4096 bytes from rank 1 (host here, pid %d): gone"},
		"asked to end, another":  {2, true, 150 * time.Millisecond, "rank 2 (host here, pid %d) is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			s, commands := sleepers(t, 2)
			g := New(s, Options{Interrupted: func() bool { return c.interrupted }})
			took, err := waitFor(t, g, 1, commands[c.victim-1].Process)
			want := fmt.Sprintf(c.want, s.peers[c.victim].PID)
			if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want ErrGone with %q", err, want)
			}
			if took > c.within {
				t.Errorf("noticed after %v, want %v", took, c.within)
			}
		})
	}
}

func TestWaitLimits(t *testing.T) {
	s, _ := sleepers(t, 1)
	s.peers = append(s.peers, Peer{2, "there", s.peers[1].PID})
	g := New(s, Options{Deadline: 100 * time.Millisecond, Patience: 400 * time.Millisecond})
	for name, c := range map[string]struct {
		from  int
		limit time.Duration
	}{
		"seen alive": {1, 400 * time.Millisecond},
		"elsewhere":  {2, 100 * time.Millisecond},
	} {
		took, err := waitFor(t, g, c.from, nil)
		want := fmt.Sprintf("recv 4096 bytes from rank %d (host %s, pid %d): no answer in %v",
			c.from, s.peers[c.from].Host, s.peers[c.from].PID, c.limit)
		if !errors.Is(err, ErrNoAnswer) || err.Error() != want {
			t.Errorf("%s: error %q, want %q", name, err, want)
		}
		if took < c.limit || took > c.limit+time.Second {
			t.Errorf("%s: gave up after %v, want %v", name, took, c.limit)
		}
	}
}

// A process that cannot be seen when the group is made is not taken for dead.
func TestInvisibleIsNotDead(t *testing.T) {
	s, commands := sleepers(t, 1)
	_ = commands[0].Process.Kill()
	_ = commands[0].Wait()
	g := New(s, Options{Deadline: 300 * time.Millisecond})
	if _, err := waitFor(t, g, 1, nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("error %v, want ErrNoAnswer", err)
	}
}

func TestAlive(t *testing.T) {
	if !alive(os.Getpid()) {
		t.Error("this process is taken for dead")
	}
	_, commands := sleepers(t, 1)
	pid := commands[0].Process.Pid
	if !alive(pid) {
		t.Error("a sleeping process is taken for dead")
	}
	expect.OK(t, unix.Kill(pid, unix.SIGKILL))
	for start := time.Now(); alive(pid); time.Sleep(time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatal("a zombie is taken for alive")
		}
	}
	_ = commands[0].Wait()
	if alive(pid) {
		t.Error("a process that is no more is taken for alive")
	}
}

// RecvUpTo takes less than a piece: a message of one piece travels in two.
func TestRecvUpToOfAPiece(t *testing.T) {
	s, _ := sleepers(t, 1)
	g, room := New(s, Options{Piece: 1000}), tensor.From(make([]byte, 1000))
	if _, err := g.RecvUpTo(1, 0, room.Span(0, 999), nil); err != nil {
		t.Error(err)
	}
	defer func() {
		if fault := recover(); fault != "comm: RecvUpTo of more than one piece" {
			t.Errorf("room for a piece: %v", fault)
		}
	}()
	_, _ = g.RecvUpTo(1, 0, room, nil)
}

// point is an event that answers so.
type point struct {
	device.Event
	done bool
	err  error
}

func (p point) Done() (bool, error) { return p.done, p.err }

func TestAwait(t *testing.T) {
	s, commands := sleepers(t, 1)
	g := New(s, Options{Deadline: 50 * time.Millisecond, Patience: 50 * time.Millisecond})
	failed := errors.New("the device failed")
	for _, test := range []struct {
		event device.Event
		want  error
	}{{point{done: true}, nil}, {point{err: failed}, failed}, {point{}, ErrNoAnswer}} {
		began := time.Now()
		if err := Await(test.event, g); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v, want %v", test.event, err, test.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%+v: took %v", test.event, took)
		}
	}
	// A peer dies that the device may wait for.
	g = New(s, Options{Deadline: 5 * time.Second})
	time.AfterFunc(50*time.Millisecond, func() { _ = commands[0].Process.Kill() })
	if err := Await(point{}, g); !errors.Is(err, ErrGone) {
		t.Errorf("with a dead peer: %v, want that it is gone", err)
	}
}

// broken is a transport whose messages fail.
type broken struct{ silent }

var errBroken = errors.New("the connection is closed")

func (b broken) Irecv(int, int, tensor.Mem) (Handle, error) { return b, nil }
func (b broken) Test(time.Duration) (bool, Arrival, error)  { return false, Arrival{}, errBroken }

// TestFailureNamesTheDead wants a message that fails since a rank has ended to
// say so, and one that fails otherwise to say no more.
func TestFailureNamesTheDead(t *testing.T) {
	s, commands := sleepers(t, 2)
	g := New(broken{s}, Options{})
	_, err := waitFor(t, g, 1, nil)
	if !errors.Is(err, errBroken) || errors.Is(err, ErrGone) {
		t.Errorf("all ranks live: %v", err)
	}
	_ = commands[1].Process.Kill()
	_, err = waitFor(t, g, 1, nil)
	if !errors.Is(err, errBroken) || !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "rank 2 ") {
		t.Errorf("rank 2 has ended: %v", err)
	}
}
