package elastic

import (
	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// Order is what rank 0 has a rank do that holds no layer.
type Order byte

// Orders.
const (
	orderGo  Order = 'g' // end now, before the others
	OrderEnd Order = 'e' // end with the others: the run is over
)

// Words of a rank without layers to rank 0, a byte each.
const (
	wordBye  = 'b' // it obeys, and says no more
	wordStop = 's' // it was asked to end the run
	wordSave = 'c' // it was asked for a checkpoint
)

// line is the connection of rank 0 and a rank without layers, as one of the two has it: a
// byte at a time, sent and received without waiting, so that no clock moves.
type line struct {
	base     *comm.Group
	peer     int
	from, to int // tags
	memory   tensor.Mem
	sent     comm.Request
	received comm.Request
}

// newLine opens a line to a peer, and listens.
func newLine(base *comm.Group, peer, from, to int) (*line, error) {
	l := &line{base: base, peer: peer, from: from, to: to}
	var err error
	if l.memory, err = base.Alloc(2); err != nil {
		return nil, err
	}
	return l, l.listen()
}

// listen begins to receive a byte.
func (l *line) listen() (err error) {
	l.received, err = l.base.Recv(l.peer, l.from, l.memory.Span(0, 1), nil)
	return err
}

// hear returns the byte that has arrived, 0 if none has.
func (l *line) hear() (byte, error) {
	if done, err := l.received.Test(); !done || err != nil {
		return 0, err
	}
	return tensor.Of[byte](l.memory)[0], nil
}

// say begins to send a byte. The one before is sent.
func (l *line) say(word byte) (err error) {
	out := l.memory.Span(1, 1)
	tensor.Of[byte](out)[0] = word
	l.sent, err = l.base.Send(l.peer, l.to, out, nil)
	return err
}

// close gives the memory of a line back on which nothing is under way any more.
func (l *line) close() { l.base.Free(l.memory) }
