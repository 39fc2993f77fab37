package elastic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/expect"
	"dynmo/src/fault"
)

// stage is a launched world whose ranks but rank 0 wait for orders, on a clock that jumps.
type stage struct {
	t      *testing.T
	r      *Releases
	mu     sync.Mutex
	orders map[int]Order // of the ranks that obeyed
	silent []int         // ranks that take no order
	stop   []int         // ranks that are asked to end the run
}

// play has rank 0 of the world of some nodes follow a script.
func play(t *testing.T, terms Terms, s *stage, script func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.t, s.orders = t, make(map[int]Order)
		expect.OK(t, local.Run(len(terms.Nodes), func(tr comm.Transport) error {
			base := comm.New(tr, comm.Options{})
			if tr.Rank() == 0 {
				r := NewReleases(base, terms)
				if s.r != nil {
					r.Scheduler, r.Retry, r.Note = s.r.Scheduler, s.r.Retry, s.r.Note
				}
				s.r = r
				script()
				return nil
			}
			if slices.Contains(s.silent, tr.Rank()) {
				return nil
			}
			none := func() bool { return false }
			order, err := Await(base, 1, func() bool { return slices.Contains(s.stop, tr.Rank()) }, none, func(fault.Phase) {})
			s.mu.Lock()
			defer s.mu.Unlock()
			s.orders[tr.Rank()] = order
			return err
		}))
	})
}

// until polls until a release has ended, a step of so long each, and fails the test where
// polling takes time. It gives up after 70 s.
func (s *stage) until(saved int, step time.Duration) *Release {
	for began := time.Now(); time.Since(began) < 70*time.Second; time.Sleep(step) {
		before := time.Now()
		ended, _, err := s.r.Poll(saved)
		expect.OK(s.t, err)
		if took := time.Since(before); took > 0 {
			s.t.Errorf("polling took %v", took)
		}
		if ended != nil {
			return ended
		}
	}
	return nil
}

// dismiss ends the run on all ranks but the silent ones.
func (s *stage) dismiss(silent ...int) {
	got, err := s.r.Dismiss()
	expect.OK(s.t, err)
	same(s.t, "silent", got, silent)
}

// ordered returns the ranks that obeyed an order.
func (s *stage) ordered(order Order) (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, o := range s.orders {
		if o == order {
			list = append(list, rank)
		}
	}
	slices.Sort(list)
	return list
}

// fakeSlurm is a scheduler in memory.
type fakeSlurm struct {
	nodes []string
	busy  int // calls that are answered so
	lies  bool
	hangs bool
	calls [][]string
}

func (f *fakeSlurm) Keep(ctx context.Context, nodes []string) error {
	f.calls = append(f.calls, nodes)
	switch {
	case f.hangs:
		<-ctx.Done()
		return ctx.Err()
	case len(f.calls) <= f.busy:
		return fmt.Errorf("%w: DB index", errBusy)
	case !f.lies:
		f.nodes = nodes
	}
	return nil
}

func (f *fakeSlurm) Nodes(context.Context) ([]string, error) { return f.nodes, nil }

// twoByTwo is the terms of 3 nodes with 2 ranks each.
func twoByTwo(mode Mode) Terms {
	return Terms{Mode: mode, Nodes: []string{"a", "a", "b", "b", "c", "c"}, Batch: "a"}
}

// same fails the test where two values differ as they are printed.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: %s, want %s", what, g, w)
	}
}

// TestRelease: a whole node is given back once a checkpoint has been written without its ranks, in
// turn with the steps. Slurm is asked when all ranks of the node have said goodbye and had time to
// end. A rank whose node is still used waits. Ranks that are left at the end end with the run.
func TestRelease(t *testing.T) {
	slurm := &fakeSlurm{}
	s := &stage{r: &Releases{Scheduler: slurm, Retry: time.Minute}}
	play(t, twoByTwo(Slurm), s, func() {
		expect.OK(t, s.r.Add(10, []int{5, 4, 3}))
		for range 100 {
			ended, _, err := s.r.Poll(9)
			expect.OK(t, err)
			if ended != nil || len(s.ordered(orderLeave)) > 0 {
				t.Fatal("ranks go before the checkpoint")
			}
			time.Sleep(50 * time.Millisecond)
		}
		var err error
		got := s.until(10, 50*time.Millisecond)
		same(t, "ranks", got.Ranks, []int{4, 5})
		same(t, "nodes before", got.NodesBefore, []string{"a", "b", "c"})
		same(t, "nodes", got.Nodes, []string{"a", "b"})
		same(t, "calls", slurm.calls, [][]string{{"a", "b"}})
		same(t, "tries, refused, steps", []any{got.Tries, got.Refused, got.Steps}, []any{1, nil, 10})
		if got.Checkpoint != 5 || got.Goodbye > 0.1 || got.Seconds < 6.5 || got.Seconds > 6.8 {
			t.Errorf("%+v", got)
		}
		expect.OK(t, s.r.Add(20, []int{2}))
		got = s.until(20, 50*time.Millisecond)
		same(t, "ranks", got.Ranks, []int{2, 3})
		same(t, "nodes", got.Nodes, []string{"a"})
		expect.OK(t, s.r.Add(30, []int{1}))
		if got, _, err = s.r.Poll(math.MaxInt); got != nil || err != nil || len(s.ordered(orderLeave)) > 4 {
			t.Errorf("rank 0's node goes: %+v, %v", got, err)
		}
		s.dismiss()
		same(t, "told to go", s.ordered(orderLeave), []int{2, 3, 4, 5})
		same(t, "told to end", s.ordered(OrderEnd), []int{1})
	})
}

// TestExit: ranks end whether or not their nodes have others, and the nodes stay the job's. Parked ranks do not end.
func TestExit(t *testing.T) {
	for mode, want := range map[Mode][]int{exit: {1, 2, 3}, Park: nil} {
		s := &stage{}
		play(t, twoByTwo(mode), s, func() {
			expect.OK(t, s.r.Add(1, []int{1, 2, 3}))
			if want != nil {
				got := s.until(1, time.Second)
				same(t, "ranks", got.Ranks, want)
				same(t, "nodes", got.Nodes, []string{"a", "b", "c"})
			} else if ended, _, err := s.r.Poll(1); ended != nil || err != nil {
				t.Errorf("%+v, %v", ended, err)
			}
			expect.OK(t, s.r.Add(2, []int{4, 5}))
			s.dismiss()
			same(t, "told to go", s.ordered(orderLeave), want)
		})
	}
}

// TestReleaseIsRefused: a busy scheduler is asked again for some time. A scheduler that says yes
// and does nothing is noticed. The next release asks for all nodes again.
func TestReleaseIsRefused(t *testing.T) {
	for _, c := range []struct {
		slurm   fakeSlurm
		tries   int
		refused string
	}{
		{fakeSlurm{busy: 3}, 4, ""},
		{fakeSlurm{busy: 31}, 31, "busy"},
		{fakeSlurm{lies: true}, 1, "the job has 3 nodes after that, want 2"},
	} {
		var noted [][]string
		c.slurm.nodes = []string{"a", "b", "c"}
		s := &stage{r: &Releases{Scheduler: &c.slurm, Retry: time.Minute, Note: func(nodes []string) error { noted = append(noted, nodes); return nil }}}
		play(t, twoByTwo(Slurm), s, func() {
			expect.OK(t, s.r.Add(1, []int{4, 5}))
			got := s.until(1, 100*time.Millisecond)
			same(t, "tries", got.Tries, c.tries)
			if c.refused == "" {
				same(t, "refused, nodes, noted", []any{got.Refused, got.Nodes, noted}, []any{nil, "[a b]", "[[c]]"})
			} else if got.Refused == nil || !strings.Contains(got.Refused.Error(), c.refused) || len(got.Nodes) != 3 || fmt.Sprint(noted) != "[[c] []]" {
				t.Errorf("%+v, noted %v, want …%s…", got, noted, c.refused)
			}
			c.slurm.lies = false
			expect.OK(t, s.r.Add(2, []int{2, 3}))
			got = s.until(2, 100*time.Millisecond)
			same(t, "nodes, calls", []any{got.Nodes, c.slurm.calls[c.tries]}, []any{"[a]", "[a]"})
			expect.OK(t, s.r.Add(3, []int{1}))
			s.dismiss()
		})
	}
}

// TestReleaseNotNoted: nodes that cannot be noted are not given back.
func TestReleaseNotNoted(t *testing.T) {
	slurm := &fakeSlurm{}
	s := &stage{r: &Releases{Scheduler: slurm, Note: func([]string) error { return errors.New("no space") }}}
	play(t, Terms{Mode: Slurm, Nodes: []string{"a", "b"}}, s, func() {
		expect.OK(t, s.r.Add(1, []int{1}))
		got := s.until(1, time.Second)
		same(t, "refused, calls", []any{got.Refused, len(slurm.calls)}, []any{"no space", 0})
	})
}

// TestSilentRank: the node of a rank that says no goodbye is kept.
func TestSilentRank(t *testing.T) {
	slurm := &fakeSlurm{}
	s := &stage{r: &Releases{Scheduler: slurm}, silent: []int{1, 3}}
	play(t, twoByTwo(Slurm), s, func() {
		expect.OK(t, s.r.Add(1, []int{2, 3, 4, 5}))
		began := time.Now()
		got := s.until(1, time.Second)
		same(t, "ranks, silent, nodes", []any{got.Ranks, got.Silent, got.Nodes}, []any{"[2 4 5]", "[3]", "[a b]"})
		if took := time.Since(began); took < goodbyeFor || took > goodbyeFor+10*time.Second {
			t.Errorf("after %v", took)
		}
		expect.OK(t, s.r.Add(1, []int{1}))
		began = time.Now()
		s.dismiss(1, 3)
		if took := time.Since(began); took > finishFor+time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestReleaseAtTheEnd: the end of a run waits for a release under way, but not long.
func TestReleaseAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		slurm   fakeSlurm
		silent  []int
		nodes   string
		refused string
	}{
		{"under way", fakeSlurm{}, nil, "[a b]", "<nil>"},
		{"hangs", fakeSlurm{hangs: true}, nil, "[a b c]", "context canceled"},
		{"silent", fakeSlurm{}, []int{5}, "[a b c]", "<nil>"},
	} {
		s := &stage{r: &Releases{Scheduler: &c.slurm}, silent: c.silent}
		play(t, twoByTwo(Slurm), s, func() {
			if ended, err := s.r.Finish(); ended != nil || err != nil {
				t.Errorf("%+v, %v, though nothing is under way", ended, err)
			}
			s.r.Terms.Mode = Slurm
			expect.OK(t, s.r.Add(1, []int{4, 5}))
			_, _, err := s.r.Poll(1)
			expect.OK(t, err)
			expect.OK(t, s.r.Add(2, []int{1, 2, 3}))
			began := time.Now()
			ended, err := s.r.Finish()
			expect.OK(t, err)
			same(t, c.name, []any{ended.Nodes, ended.Refused}, []any{c.nodes, c.refused})
			if took := time.Since(began); took > finishFor+time.Second {
				t.Errorf("%s: the end took %v", c.name, took)
			}
			s.dismiss(c.silent...)
			same(t, "told to end", s.ordered(OrderEnd), []int{1, 2, 3})
		})
	}
}

// TestWaitingRankIsAsked: a signal to a rank that waits reaches rank 0, once.
func TestWaitingRankIsAsked(t *testing.T) {
	s := &stage{stop: []int{1}}
	play(t, Terms{Mode: Park, Nodes: []string{"a", "b"}}, s, func() {
		expect.OK(t, s.r.Add(1, []int{1}))
		times := 0
		for range 10 {
			time.Sleep(time.Second)
			_, asked, err := s.r.Poll(1)
			expect.OK(t, err)
			if asked.Stop {
				times++
			}
		}
		same(t, "times", times, 1)
		s.dismiss()
	})
}
