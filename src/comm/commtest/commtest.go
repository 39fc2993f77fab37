// Package commtest is the conformance suite of comm: a list of programs that
// every rank of a world runs, over goroutines and over MPI alike. A program
// gets its rank's transport and returns an error if anything it received is
// wrong.
package commtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// Case is one program. It works on worlds of any size.
type Case struct {
	Name string
	Run  func(t comm.Transport) error
}

// Cases returns the suite. With DYNMO_LONG=1 in the environment it includes
// one message of more than 2 GiB.
func Cases() []Case {
	cases := []Case{
		{"Lengths", lengths},
		{"Pieces", pieces},
		{"TagsOutOfOrder", tagsOutOfOrder},
		{"FirstInFirstOut", firstInFirstOut},
		{"AllPairs", allPairs},
		{"OldRequests", oldRequests},
		{"Bytes", sendBytes},
		{"WrongLength", wrongLength},
		{"WrongLengthInPieces", wrongLengthInPieces},
		{"Collectives", collectives},
		{"AllreduceOrder", allreduceOrder},
		{"Split", split},
		{"VirtualTime", virtualTime},
		{"VirtualLinks", virtualLinks},
		{"VirtualDelays", virtualDelays},
		{"VirtualBarrier", virtualBarrier},
		{"Deadline", deadline},
		{"Patience", patience},
	}
	if os.Getenv("DYNMO_LONG") == "1" {
		cases = append(cases, Case{"Over2GiB", over2GiB})
	}
	return cases
}

// quick are the options of programs in which nothing should be waited for long.
func quick() comm.Options { return comm.Options{Patience: 20 * time.Second} }

// pattern returns the bytes that message number index between two ranks holds.
func pattern(from, to, index int, length int64) []byte {
	var seed [32]byte
	copy(seed[:], fmt.Sprint(from, to, index))
	data := make([]byte, length)
	_, _ = rand.NewChaCha8(seed).Read(data) // it always fills data
	return data
}

// exchange is a message being sent or received by a program.
type exchange struct {
	g       *comm.Group
	mem     tensor.Mem
	want    []byte // nil for a send
	request comm.Request
}

// send begins to send a pattern.
func send(g *comm.Group, to, tag, index int, length int64) (*exchange, error) {
	m, err := g.Alloc(length)
	if err != nil {
		return nil, err
	}
	copy(tensor.Of[byte](m), pattern(g.Rank(), to, index, length))
	r, err := g.Send(to, tag, m, nil)
	return &exchange{g, m, nil, r}, err
}

// recv begins to receive a pattern.
func recv(g *comm.Group, from, tag, index int, length int64) (*exchange, error) {
	m, err := g.Alloc(length)
	if err != nil {
		return nil, err
	}
	r, err := g.Recv(from, tag, m, nil)
	return &exchange{g, m, pattern(from, g.Rank(), index, length), r}, err
}

// finish waits for exchanges, compares what was received, and frees it.
func finish(exchanges ...*exchange) error {
	for i, e := range exchanges {
		if err := e.request.Wait(); err != nil {
			return err
		}
		if done, err := e.request.Test(); !done || err != nil {
			return fmt.Errorf("Test after Wait: %v, %v", done, err)
		}
		if e.want != nil && string(e.want) != string(tensor.Of[byte](e.mem)) {
			return fmt.Errorf("exchange %d: received other bytes than were sent", i)
		}
		e.g.Free(e.mem)
	}
	return nil
}

// neighbours returns the ranks above and below, in a ring.
func neighbours(g *comm.Group) (above, below int) {
	return (g.Rank() + 1) % g.Size(), (g.Rank() + g.Size() - 1) % g.Size()
}
