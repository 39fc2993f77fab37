package nodebench

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// PingPong exchanges messages with a peer as comm.PingPong does, by other
// means, and returns the mean seconds of one.
type PingPong func(peer int, out, in tensor.Mem, messages int) (float64, error)

const (
	// messageReach is the part of plain C's speed that a message of at least
	// messageFrom bytes should have.
	messageReach = 0.9
	messageFrom  = 1 << 20
	// roundBytes and roundMessages bound what one round of a length sends each
	// way: enough for a clock, little enough that rounds alternate quickly.
	roundBytes    = 8 << 20
	roundMessages = 500
)

// NetLengths returns the lengths of messages that Net is usually asked for:
// from shortest bytes, four times as long each, up to longest.
func NetLengths(shortest, longest int64) []int64 {
	var lengths []int64
	for length := shortest; length <= longest; length *= 4 {
		lengths = append(lengths, length)
	}
	return lengths
}

// Net measures messages between the two ranks of a world, as a pipeline sends
// them, against the same messages in plain C: seconds in C over ours, at each
// length, a multiple of 8 bytes. Rounds of the two alternate. A message that comes
// back from the other rank is compared with the one that was sent. Then it measures how
// fast a dense and a sparse layer move between the ranks (see migration).
// All figures are rank 0's; other ranks get none. Collective.
func Net(world *comm.Group, plain PingPong, k kernel.Backend, dev device.Device, lengths []int64, rounds Rounds) ([]Result, error) {
	n := network{bench: newBench(k, dev), world: world, plain: plain}
	defer n.free()
	sparsities := []bool{false, true}
	parts := len(lengths) + len(sparsities)
	for i, length := range lengths {
		n.rounds = rounds.of(i, parts)
		if err := n.messages(length); err != nil {
			return nil, fmt.Errorf("net: messages of %d bytes: %w", length, err)
		}
	}
	for i, sparse := range sparsities {
		n.rounds = rounds.of(len(lengths)+i, parts)
		if err := n.migration(sparse); err != nil {
			return nil, fmt.Errorf("net: migration: %w", err)
		}
	}
	if world.Rank() != 0 {
		return nil, nil
	}
	return n.results, nil
}

// network is a benchmark of the messages between two ranks.
type network struct {
	*bench
	world  *comm.Group
	plain  PingPong
	rounds Rounds // of the part that is measured now
}

// link is memory to exchange messages of one length with.
type link struct {
	out, in tensor.Mem
	wrong   int // words of messages that did not come back as they were sent
}

// messages measures one length.
func (n *network) messages(length int64) error {
	l, err := n.link(length)
	if err != nil {
		return err
	}
	defer n.free()
	count := int(max(1, min(roundMessages, roundBytes/length)))
	seconds := make(spans, 2) // in C, ours
	for round := range n.rounds.Count + 1 {
		for i, exchange := range []PingPong{n.plain, n.ours} {
			took, err := n.exchange(l, exchange, 2*round+i, count)
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				seconds[i] = append(seconds[i], took)
			}
		}
		n.rounds.show(round)
	}
	reach := 0.0
	if length >= messageFrom {
		reach = messageReach
	}
	n.speed("net/message_c_"+size(length), seconds[0], length, l.wrong)
	n.speed("net/message_"+size(length), seconds[1], length, l.wrong)
	n.add("net/message_ratio_"+size(length), seconds.ratio(0, 1, 1), "ratio", reach, l.wrong)
	return nil
}

// ours exchanges messages the way a pipeline does.
func (n *network) ours(peer int, out, in tensor.Mem, messages int) (float64, error) {
	return comm.PingPong(n.world, peer, out, in, messages)
}

// link allocates memory of the device, as a pipeline's is.
func (n *network) link(length int64) (*link, error) {
	l := &link{out: n.alloc(length), in: n.alloc(length)}
	return l, n.err
}

// exchange makes one round of messages, and checks on rank 0 that its message
// came back unchanged: the other rank returns the one it got. Both begin together.
func (n *network) exchange(l *link, exchange PingPong, round, messages int) (float64, error) {
	out, in := tensor.Of[uint64](l.out), tensor.Of[uint64](l.in)
	for i := range out {
		out[i] = word(round, i)
	}
	clear(in)
	if err := n.world.Barrier(); err != nil {
		return 0, err
	}
	seconds, err := exchange(1-n.world.Rank(), l.out, l.in, messages)
	if err != nil {
		return 0, err
	}
	for i, got := range in {
		if got != word(round, i) {
			l.wrong++
		}
	}
	return seconds, nil
}

// word returns a word of the message of a round; no two are equal.
func word(round, i int) uint64 { return (uint64(i)<<32 | uint64(round+1)) * 0x9e3779b97f4a7c15 }

// speed appends how fast messages of a length are: as time where latency counts,
// as bandwidth where that does.
func (n *network) speed(name string, seconds []float64, length int64, wrong int) {
	if length < messageFrom {
		e := estimated(seconds)
		n.add(name, estimate{e.median * 1e6, e.low * 1e6, e.high * 1e6}, "us", 0, wrong)
		return
	}
	n.add(name, spans{seconds}.rate(0, float64(length)/1e9), "GB/s", 0, wrong)
}

// size writes a length shortly: 64B, 16KiB, 1MiB.
func size(length int64) string {
	switch {
	case length >= 1<<20 && length%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", length>>20)
	case length >= 1<<10 && length%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", length>>10)
	}
	return fmt.Sprintf("%dB", length)
}
