package comm

import (
	"time"

	"dynmo/src/device"
)

// stagedTag is that of the messages of rounds: no room has it.
const stagedTag = TagDevice

// stagedRound is a round of a staged transport: messages like all others.
type stagedRound []Handle

// Exchange begins the messages of a round.
func (c *staged) Exchange(sends, recvs []Part, after device.Event) (RoundHandle, error) {
	r := new(stagedRound)
	for _, p := range recvs {
		if p.Mem.Bytes == 0 {
			continue
		}
		h, err := c.Recv(p.Rank, stagedTag, p.Mem, false, after)
		if err != nil {
			return nil, err
		}
		*r = append(*r, h)
	}
	for _, p := range sends {
		if p.Mem.Bytes == 0 {
			continue
		}
		h, err := c.Send(p.Rank, stagedTag, p.Mem, after)
		if err != nil {
			return nil, err
		}
		*r = append(*r, h)
	}
	return r, nil
}

// Test drives the messages, one after the other.
func (r *stagedRound) Test(spin time.Duration) (bool, Arrival, error) {
	for len(*r) > 0 {
		done, _, err := (*r)[0].Test(spin)
		if err != nil || !done {
			return err != nil, Arrival{}, err
		}
		*r = (*r)[1:]
	}
	return true, Arrival{}, nil
}

// Arrived does the same: what has been copied to the host is on its way to the device.
func (r *stagedRound) Arrived() (bool, error) {
	done, _, err := r.Test(0)
	return done, err
}

// Split returns a transport of its own for the part.
func (c *staged) Split(t Transport, _ int, _ Kind) (DeviceTransport, error) {
	if t == nil {
		return nil, c.err
	}
	return newStaged(t, c.d, c.compute)
}

// Ready reports that nothing is to be made.
func (c *staged) Ready() (bool, error) { return true, c.err }
