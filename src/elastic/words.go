package elastic

import (
	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// Order is an order of rank 0 to a rank that holds no layer. Every order ends the rank's waiting.
type Order byte

// Orders of Await. An order other than OrderEnd means: end now, while the other ranks go on.
const (
	orderGo  Order = 'g' // end now
	OrderEnd Order = 'e' // end with the others: the run is over
)

// Messages of a rank without layers to rank 0, one byte each.
const (
	wordBye  = 'b' // confirms the order; the rank's last message
	wordStop = 's' // the rank's process was asked to end the run
	wordSave = 'c' // the rank's process was asked for a checkpoint
)

// line is one side of the connection between rank 0 and a rank without layers. Messages are single
// bytes. They are sent and received without waiting, so no virtual clock moves.
type line struct {
	base     *comm.Group
	peer     int
	from, to int // tags
	memory   tensor.Mem
	sent     comm.Request
	received comm.Request
}

// newLine opens a line to a peer, and begins to receive.
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

// hear returns the byte that has arrived, 0 if no byte has arrived.
func (l *line) hear() (byte, error) {
	if done, err := l.received.Test(); !done || err != nil {
		return 0, err
	}
	return tensor.Of[byte](l.memory)[0], nil
}

// say begins to send a byte. The caller has waited until the byte before is sent.
func (l *line) say(word byte) (err error) {
	out := l.memory.Span(1, 1)
	tensor.Of[byte](out)[0] = word
	l.sent, err = l.base.Send(l.peer, l.to, out, nil)
	return err
}

// close gives the memory of the line back. No message of the line is under way.
func (l *line) close() { l.base.Free(l.memory) }
