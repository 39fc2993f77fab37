package local

import (
	"errors"
	"strings"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/expect"
)

var errBroken = errors.New("broken")

// A rank that fails wakes every rank that waits, for anything and in any group.
func TestFail(t *testing.T) {
	for name, wait := range map[string]func(g, part *comm.Group) error{
		"recv": func(g, _ *comm.Group) error {
			_, err := g.RecvBytes(2, 0)
			return err
		},
		"recv from another": func(g, _ *comm.Group) error {
			_, err := g.RecvBytes(1-g.Rank(), 0)
			return err
		},
		"send": func(g, _ *comm.Group) error {
			m, err := g.Alloc(8)
			if err != nil {
				return err
			}
			r, err := g.Send(2, 0, m, nil)
			if err != nil {
				return err
			}
			return r.Wait()
		},
		"recv in a part": func(_, part *comm.Group) error {
			_, err := part.RecvBytes(1-part.Rank(), 0)
			return err
		},
		"split": func(g, _ *comm.Group) error {
			_, err := g.Split(0, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(3, func(tr comm.Transport) error {
				g := comm.New(tr, comm.Options{})
				part, err := g.Split(g.Rank()/2, 0) // {0, 1}, {2}
				if err != nil {
					return err
				}
				if g.Rank() == 2 {
					time.Sleep(20 * time.Millisecond)
					return errBroken
				}
				err = wait(g, part)
				if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "rank 2: broken") {
					t.Errorf("rank %d: %v, want one that names rank 2", g.Rank(), err)
				}
				if err := g.SendBytes(0, 1, nil); !errors.Is(err, errBroken) {
					t.Errorf("rank %d: a send after the failure: %v", g.Rank(), err)
				}
				return err
			})
			if err == nil || err.Error() != "rank 2: broken" {
				t.Errorf("Run: %v, want the first error", err)
			}
		})
	}
}

func TestAbort(t *testing.T) {
	err := Run(2, func(tr comm.Transport) error {
		g := comm.New(tr, comm.Options{})
		if g.Rank() == 1 {
			g.Abort(3)
			return nil
		}
		return g.Barrier()
	})
	if err == nil || err.Error() != "rank 1: aborted with status 3" {
		t.Errorf("Run: %v", err)
	}
}

// A transport's Split has no barrier of the group's before it.
func TestSplitOfFailedWorld(t *testing.T) {
	ranks := World(2)
	time.AfterFunc(20*time.Millisecond, func() { ranks[1].(*member).Fail(errBroken) })
	if _, err := ranks[0].Split(0, 0); !errors.Is(err, errBroken) {
		t.Errorf("Split: %v", err)
	}
}

// A message that was matched before the failure is delivered.
func TestFailAfterDelivery(t *testing.T) {
	ranks := World(2)
	m, _ := ranks[0].Alloc(8)
	out, err := ranks[0].Isend(1, 0, m, 1.5)
	expect.OK(t, err)
	n, _ := ranks[1].Alloc(8)
	in, err := ranks[1].Irecv(0, 0, n)
	expect.OK(t, err)
	late, err := ranks[1].Irecv(0, 0, n)
	expect.OK(t, err)
	ranks[0].(*member).Fail(errBroken)
	for _, h := range []comm.Handle{in, out} {
		if done, got, err := h.Test(0); !done || got != (comm.Arrival{Stamp: 1.5, Bytes: 8}) || err != nil {
			t.Errorf("a delivered message: %v, %+v, %v", done, got, err)
		}
	}
	if done, _, err := late.Test(0); !done || !errors.Is(err, errBroken) {
		t.Errorf("a message that will not come: %v, %v", done, err)
	}
}
