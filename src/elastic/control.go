package elastic

import (
	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// Order is an order of rank 0 to a rank that holds no layer. Every order ends the rank's waiting.
type Order byte

// Orders of Await. An order other than OrderEnd ends only this rank; the other ranks go on.
const (
	orderLeave Order = 'g' // end now
	OrderEnd   Order = 'e' // end with the others: the run is over
)

// Messages of a rank without layers to rank 0, one byte each.
const (
	messageGoodbye = 'b' // confirms the order; the rank's last message
	messageStop    = 's' // the rank's process was asked to end the run
	messageSave    = 'c' // the rank's process was asked for a checkpoint
)

// controlChannel is one side of the connection between rank 0 and a rank without layers. It carries
// orders one way and messages the other way, each a single byte. Sends and receives never wait, so
// no virtual clock moves.
type controlChannel struct {
	base                *comm.Group
	peer                int // the other side's rank in base
	receiveTag, sendTag int
	memory              tensor.Mem   // byte 0 receives, byte 1 sends
	sent                comm.Request // the latest send
	received            comm.Request // the receive under way
}

// openChannel opens a control channel to a peer, and begins to receive.
func openChannel(base *comm.Group, peer, receiveTag, sendTag int) (*controlChannel, error) {
	c := &controlChannel{base: base, peer: peer, receiveTag: receiveTag, sendTag: sendTag}
	var err error
	if c.memory, err = base.Alloc(2); err != nil {
		return nil, err
	}
	return c, c.startReceive()
}

// startReceive begins to receive a byte.
func (c *controlChannel) startReceive() (err error) {
	c.received, err = c.base.Recv(c.peer, c.receiveTag, c.memory.Span(0, 1), nil)
	return err
}

// poll returns the byte that has arrived, 0 if no byte has arrived.
func (c *controlChannel) poll() (byte, error) {
	if done, err := c.received.Test(); !done || err != nil {
		return 0, err
	}
	return tensor.Of[byte](c.memory)[0], nil
}

// startSend begins to send a byte. The caller has waited until the previous byte is sent.
func (c *controlChannel) startSend(message byte) (err error) {
	out := c.memory.Span(1, 1)
	tensor.Of[byte](out)[0] = message
	c.sent, err = c.base.Send(c.peer, c.sendTag, out, nil)
	return err
}

// close frees the channel's memory. No send or receive may be under way.
func (c *controlChannel) close() { c.base.Free(c.memory) }
