//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/tensor"
)

// roleVariable makes this test binary a rank: it then runs one of the roles
// instead of tests. Tests start it so, under mpirun.
const roleVariable = "DYNMO_TEST_ROLE"

var roles = map[string]func(t comm.Transport) error{
	"suite":    suite,
	"faults":   goFaults,
	"disagree": disagree,
	"leave":    commtest.Leave,
	"ring":     endlessRing,
}

func TestMain(m *testing.M) {
	role := roles[os.Getenv(roleVariable)]
	if role == nil {
		os.Exit(m.Run())
	}
	t, err := Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := role(t); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", t.Rank(), err)
		t.Abort(1)
	}
	if err := t.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	Exit(0)
}

// suite runs all of commtest and says so.
func suite(t comm.Transport) error {
	for _, c := range commtest.Cases() {
		if err := c.Run(t); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if t.Rank() == 0 {
			fmt.Println("passed", c.Name)
		}
	}
	return nil
}

// goFaults: MPI leaves Go its signals, so a nil pointer is still a panic.
func goFaults(comm.Transport) (err error) {
	defer func() {
		if recover() == nil {
			err = fmt.Errorf("a nil pointer did not panic")
		}
	}()
	var nothing *comm.Peer
	fmt.Println(nothing.Host)
	return nil
}

// disagree: rank 1 has another configuration; every rank is told.
func disagree(t comm.Transport) error {
	hash := [32]byte{31: 1}
	if err := Agree("binary", hash); err != nil {
		return err
	}
	if t.Rank() == 1 {
		hash[31] = 2
	}
	err := Agree("configuration", hash)
	if err == nil || err.Error() != "mpi: rank 1 has another configuration than rank 0" {
		return fmt.Errorf("disagreement: %v", err)
	}
	return nil
}

// endlessRing passes 32 MiB messages round until something breaks.
func endlessRing(t comm.Transport) error {
	var interrupted atomic.Bool
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	go func() {
		for range signals {
			interrupted.Store(true)
		}
	}()
	fmt.Printf("rank %d pid %d\n", t.Rank(), os.Getpid())
	g := comm.New(t, comm.Options{Interrupted: interrupted.Load})
	in, err := g.Alloc(32 << 20)
	if err != nil {
		return err
	}
	out, err := g.Alloc(32 << 20)
	if err != nil {
		return err
	}
	clear(tensor.Of[byte](out))
	above, below := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
	for {
		r, err := g.Recv(below, 0, in, nil)
		if err != nil {
			return err
		}
		s, err := g.Send(above, 0, out, nil)
		if err != nil {
			return err
		}
		if err := r.Wait(); err != nil {
			return err
		}
		if err := s.Wait(); err != nil {
			return err
		}
	}
}
