package commtest

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
)

// messenger sends and receives patterns: the host memory of a Group, or the memory
// of devices by a comm.DeviceTransport.
type messenger interface {
	Rank() int
	Size() int
	send(to, tag, index int, length int64) (finisher, error)
	// recv receives into memory that has room for more than the pattern with upTo,
	// and else for as much.
	recv(from, tag, index int, length, room int64, upTo bool) (finisher, error)
}

// finisher is a message under way.
type finisher interface {
	wait() error
	compare() error // the bytes received with those that were sent, after wait
}

// finish waits for messages and compares the bytes received, once all are done: who
// waits for the device sends nothing meanwhile, for which the peer may wait.
func finish[F finisher](all ...F) error {
	for _, step := range []func(F) error{F.wait, F.compare} {
		for i, m := range all {
			if err := step(m); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
	}
	return nil
}

// batch begins messages and finishes them together. Its error is the first of them.
type batch struct {
	messenger
	all []finisher
	err error
}

// add adds a message that has begun, unless err says that it has not.
func (b *batch) add(m finisher, err error) {
	b.all = append(b.all, m)
	if b.err == nil {
		b.err = err
	}
}

func (b *batch) send(to, tag, index int, length int64) {
	b.add(b.messenger.send(to, tag, index, length))
}

func (b *batch) recv(from, tag, index int, length int64) {
	b.add(b.messenger.recv(from, tag, index, length, length, false))
}

func (b *batch) recvUpTo(from, tag, index int, length, room int64) {
	b.add(b.messenger.recv(from, tag, index, length, room, true))
}

func (b *batch) finish() error {
	all := b.all
	b.all = nil
	if b.err != nil {
		return b.err
	}
	return finish(all...)
}

// onGroup returns a batch of host memory.
func onGroup(g *comm.Group) *batch { return &batch{messenger: host{g}} }

// onHost returns the program of a Case that runs one with host memory.
func onHost(program func(*batch) error) func(comm.Transport) error {
	return func(t comm.Transport) error { return program(onGroup(comm.New(t, quick()))) }
}

// onDevice returns the program of a DeviceCase that runs one with device memory, and
// closes the transport.
func onDevice(program func(*batch) error) func(*Rank) error {
	return func(r *Rank) error {
		if err := program(&batch{messenger: r}); err != nil {
			return err
		}
		return r.DeviceTransport.Close()
	}
}

// ring returns a program that sends messages of these lengths up the ring, one after
// the other.
func ring(lengths []int64) func(*batch) error {
	return func(b *batch) error {
		above, below := neighbours(b)
		for i, length := range lengths {
			b.recv(below, comm.TagForward, i, length)
			b.send(above, comm.TagForward, i, length)
			if err := b.finish(); err != nil {
				return fmt.Errorf("%d bytes: %w", length, err)
			}
		}
		return nil
	}
}

// pairs returns a program that sends from every rank to others, before any receives.
func pairs(lengths []int64, others func(ranked) []int) func(*batch) error {
	return func(b *batch) error {
		for i, length := range lengths {
			for _, peer := range others(b) {
				b.send(peer, i, i, length)
			}
		}
		for i, length := range lengths {
			for _, peer := range others(b) {
				b.recv(peer, i, i, length)
			}
		}
		return b.finish()
	}
}

// everyone returns all ranks, this one too.
func everyone(m ranked) []int {
	list := make([]int, m.Size())
	for rank := range list {
		list[rank] = rank
	}
	return list
}

// around returns this rank and its neighbours in a ring.
func around(m ranked) []int {
	above, below := neighbours(m)
	list := []int{m.Rank(), above, below}
	slices.Sort(list)
	return slices.Compact(list)
}

// tagsOutOfOrder: many messages under way, received from the last tag to the first.
func tagsOutOfOrder(b *batch) error {
	const messages = 60
	above, below := neighbours(b)
	length := func(i int) int64 { return int64(i*i*7 + 1) }
	for i := range messages {
		b.send(above, i*100, i, length(i))
	}
	for i := messages - 1; i >= 0; i-- {
		b.recv(below, i*100, i, length(i))
	}
	return b.finish()
}

// firstInFirstOut: messages with one tag arrive in the order in which they were sent. Their
// receives begin before or after, one by one or ten at a time.
func firstInFirstOut(b *batch) error {
	const messages, length = 50, 5000
	above, below := neighbours(b)
	send := func(i int) { b.send(above, comm.TagReduce, i, length) }
	recv := func(i int) { b.recv(below, comm.TagReduce, i, length) }
	for _, order := range [][2]func(int){{send, recv}, {recv, send}} {
		for _, queue := range []int{10, 1} {
			for first := 0; first < messages; first += queue {
				for _, begin := range order {
					for i := range queue {
						begin(first + i)
					}
				}
			}
		}
	}
	return b.finish()
}

// upTo returns a program that receives messages into memory with spare room, among exact ones with
// their tag, before they are sent and after. The memory behind a message keeps its contents.
func upTo(lengths []int64, room int64) func(*batch) error {
	return func(b *batch) error {
		above, below := neighbours(b)
		peers := [][2]int{{above, below}, {b.Rank(), b.Rank()}}
		for i := range 4 {
			to, from := peers[i/2][0], peers[i/2][1]
			send := func() {
				for i, length := range lengths {
					b.send(to, 5, i, length)
				}
			}
			recv := func() {
				for i, length := range lengths {
					if i%4 == 3 {
						b.recv(from, 5, i, length)
					} else {
						b.recvUpTo(from, 5, i, length, room)
					}
				}
			}
			if i%2 == 0 {
				send()
				recv()
			} else {
				recv()
				send()
			}
			if err := b.finish(); err != nil {
				return err
			}
		}
		return nil
	}
}
