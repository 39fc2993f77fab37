// Package commtest is the conformance suite of comm: a list of programs that
// every rank of a world runs, over goroutines and over MPI alike. A program
// gets its rank's transport and returns an error, or ends by Must, if anything it
// received is wrong.
package commtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
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
		{"Lengths", onHost(ring(lengths))},
		{"Pieces", pieces},
		{"UpTo", onHost(upTo([]int64{0, 1, 100_000, 4095, 0, 4097, 65537, 99_999, 8}, 100_000))},
		{"UpToTooLong", upToTooLong},
		{"TagsOutOfOrder", onHost(tagsOutOfOrder)},
		{"FirstInFirstOut", onHost(firstInFirstOut)},
		{"AllPairs", onHost(pairs([]int64{0, 1000, 5000, 100_000}, everyone))},
		{"OldRequests", oldRequests},
		{"Bytes", sendBytes},
		{"WrongLength", wrongLength},
		{"WrongLengthInPieces", wrongLengthInPieces},
		{"Exchange", func(t comm.Transport) error { return exchangeRounds(onHostMemory(comm.New(t, quick()))) }},
		{"Collectives", collectives},
		{"AllreduceOrder", allreduceOrder},
		{"Split", split},
		{"Leave", leave},
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
	for i, c := range cases {
		cases[i].Run = func(t comm.Transport) error { return guarded(func() error { return c.Run(t) }) }
	}
	return cases
}

// hung is how long a rank waits for a peer before a test fails. It is long, because under the
// race detector on a busy host a peer can be without a core for over 20 seconds.
const hung = 3 * time.Minute

// quick are the options of programs in which nothing should be waited for long.
func quick() comm.Options { return comm.Options{Patience: hung} }

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
	length  int64  // received
	request comm.Request
}

// wanted returns memory with some room after it has received a pattern: behind that
// is what was there before.
func wanted(from, to, index int, length, room int64) []byte {
	return slices.Concat(pattern(from, to, index, length), bytes.Repeat([]byte{0xa5}, int(room-length)))
}

// send begins to send a pattern.
func send(g *comm.Group, to, tag, index int, length int64) (*exchange, error) {
	m := Value(g.Alloc(length))
	copy(tensor.Of[byte](m), pattern(g.Rank(), to, index, length))
	r, err := g.Send(to, tag, m, nil)
	return &exchange{g, m, nil, 0, r}, err
}

// recv begins to receive a pattern.
func recv(g *comm.Group, from, tag, index int, length int64) (*exchange, error) {
	return recvInto(g, from, tag, index, length, length, g.Recv)
}

// receive is Recv or RecvUpTo of a Group.
type receive func(from, tag int, m tensor.Mem, after device.Event) (comm.Request, error)

func recvInto(g *comm.Group, from, tag, index int, length, room int64, begin receive) (*exchange, error) {
	m := Value(g.Alloc(room))
	want := wanted(from, g.Rank(), index, length, room)
	copy(tensor.Of[byte](m)[length:], want[length:])
	r, err := begin(from, tag, m, nil)
	return &exchange{g, m, want, length, r}, err
}

// host is a Group as a messenger.
type host struct{ *comm.Group }

func (h host) send(to, tag, index int, length int64) (finisher, error) {
	return send(h.Group, to, tag, index, length)
}

func (h host) recv(from, tag, index int, length, room int64, upTo bool) (finisher, error) {
	if upTo {
		return recvInto(h.Group, from, tag, index, length, room, h.RecvUpTo)
	}
	return recv(h.Group, from, tag, index, length)
}

func (e *exchange) wait() error {
	received, err := e.request.Received()
	if err != nil {
		return err
	}
	if received != e.length {
		return fmt.Errorf("received %d bytes, want %d", received, e.length)
	}
	if done, err := e.request.Test(); !done || err != nil {
		return fmt.Errorf("Test after Wait: %v, %v", done, err)
	}
	return nil
}

func (e *exchange) compare() error {
	if e.want != nil && !bytes.Equal(e.want, tensor.Of[byte](e.mem)) {
		return errors.New("received other bytes than were sent")
	}
	e.g.Free(e.mem)
	return nil
}

// ranked is a rank among others.
type ranked interface {
	Rank() int
	Size() int
}

// neighbours returns the ranks above and below, in a ring.
func neighbours(g ranked) (above, below int) {
	return (g.Rank() + 1) % g.Size(), (g.Rank() + g.Size() - 1) % g.Size()
}

// failure is an error that ends a program where it occurs; guarded returns it.
type failure struct{ error }

// Must ends the program that calls it if err is an error.
func Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Value returns v, or ends the program if err is an error.
func Value[T any](v T, err error) T {
	Must(err)
	return v
}

// guarded returns the error of a program, which may also end by Must.
func guarded(program func() error) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case failure:
			err = cause.error
		default:
			panic(cause)
		}
	}()
	return program()
}
