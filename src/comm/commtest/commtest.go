// Package commtest is the conformance suite of comm: a list of programs that
// every rank of a world runs, over goroutines and over MPI alike. A program
// gets its rank's transport and returns an error if anything it received is
// wrong.
package commtest

import (
	"bytes"
	"fmt"
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
		{"UpTo", upTo},
		{"UpToTooLong", upToTooLong},
		{"UpToInPieces", upToInPieces},
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
		{"Leave", Leave},
		{"VirtualTime", virtualTime},
		{"VirtualUpTo", virtualUpTo},
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
	data := make([]byte, length)
	seed := uint32(from*7919 + to*104729 + index*1299709)
	for i := range data {
		seed = seed*1664525 + 1013904223 // Numerical Recipes' generator
		data[i] = byte(seed >> 24)
	}
	return data
}

// exchange is a message being sent or received by a program.
type exchange struct {
	g       *comm.Group
	mem     tensor.Mem
	want    []byte // nil for a send
	request comm.Request
}

// behind is what the memory of a receive holds where no message came.
const behind = 0xa5

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

// recvUpTo begins to receive a pattern into memory that has room for more.
func recvUpTo(g *comm.Group, from, tag, index int, length, room int64) (*exchange, error) {
	m, err := g.Alloc(room)
	if err != nil {
		return nil, err
	}
	for i := range tensor.Of[byte](m) {
		tensor.Of[byte](m)[i] = behind
	}
	r, err := g.RecvUpTo(from, tag, m, nil)
	return &exchange{g, m, pattern(from, g.Rank(), index, length), r}, err
}

// finish waits for exchanges, compares what was received, and frees it.
func finish(exchanges ...*exchange) error {
	for i, e := range exchanges {
		received, err := e.request.Received()
		if err != nil {
			return err
		}
		if received != int64(len(e.want)) {
			return fmt.Errorf("exchange %d: received %d bytes, want %d", i, received, len(e.want))
		}
		if done, err := e.request.Test(); !done || err != nil {
			return fmt.Errorf("Test after Wait: %v, %v", done, err)
		}
		if e.want != nil && !bytes.Equal(e.want, tensor.Of[byte](e.mem)[:received]) {
			return fmt.Errorf("exchange %d: received other bytes than were sent", i)
		}
		for _, b := range tensor.Of[byte](e.mem)[received:] {
			if e.want != nil && b != behind {
				return fmt.Errorf("exchange %d: the memory behind %d bytes was changed", i, received)
			}
		}
		e.g.Free(e.mem)
	}
	return nil
}

// neighbours returns the ranks above and below, in a ring.
func neighbours(g *comm.Group) (above, below int) {
	return (g.Rank() + 1) % g.Size(), (g.Rank() + g.Size() - 1) % g.Size()
}
