package nodebench

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// PingPong exchanges messages with a peer as comm.PingPong does, by other means. It returns the
// mean seconds of one message.
type PingPong func(peer int, out, in tensor.Mem, messages int) (float64, error)

const (
	// messageReach is the share of plain C's speed to reach, for messages of at least messageFrom
	// bytes.
	messageReach = 0.9
	messageFrom  = 1 << 20
	// roundBytes and roundMessages bound the messages of one length that a round sends in each
	// direction. They are large enough for the clock, and small enough for quickly alternating
	// rounds.
	roundBytes    = 8 << 20
	roundMessages = 500
)

// NetLengths returns the usual lengths of messages for Net: from shortest bytes, each four times as
// long as the one before, up to longest.
func NetLengths(shortest, longest int64) []int64 {
	var lengths []int64
	for length := shortest; length <= longest; length *= 4 {
		lengths = append(lengths, length)
	}
	return lengths
}

// Net measures messages between the two ranks of a world, as a pipeline sends them, against the
// same messages in plain C. A figure is seconds in C over ours, at each length, a multiple of 8
// bytes. Rounds of the two alternate. Rank 0 compares its message with the one that the other rank
// returns. Then Net measures how fast a dense and a sparse layer move between the ranks (see
// migration). Only rank 0 gets figures. Collective.
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

// network is the state of a benchmark of messages between two ranks.
type network struct {
	*bench
	world  *comm.Group
	plain  PingPong
	rounds Rounds // of the present part
}

// link has the buffers for messages of one length.
type link struct {
	out, in tensor.Mem
	wrong   int // words of messages that came back changed
}

// messages measures messages of one length.
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
			if round > 0 { // round 0 warms up
				seconds[i] = append(seconds[i], took)
			}
		}
		n.rounds.show(round)
	}
	reach := 0.0
	if length >= messageFrom {
		reach = messageReach
	}
	n.speed("net/message_c_"+Size(length), seconds[0], length, l.wrong)
	n.speed("net/message_"+Size(length), seconds[1], length, l.wrong)
	n.add("net/message_ratio_"+Size(length), seconds.ratio(0, 1, 1), "ratio", reach, l.wrong)
	return nil
}

// ours exchanges messages the way a pipeline does.
func (n *network) ours(peer int, out, in tensor.Mem, messages int) (float64, error) {
	return comm.PingPong(n.world, peer, out, in, messages)
}

// link allocates buffers in memory of the device, as in a pipeline.
func (n *network) link(length int64) (*link, error) {
	l := &link{out: n.alloc(length), in: n.alloc(length)}
	return l, n.err
}

// exchange makes one round of messages, which both ranks begin together. The other rank returns the
// message that it received. Rank 0 checks that its own message came back unchanged.
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

// word returns a word of a round's message. All words differ.
func word(round, i int) uint64 { return (uint64(i)<<32 | uint64(round+1)) * 0x9e3779b97f4a7c15 }

// speed appends the speed of messages of one length: as time for short messages, where latency
// counts, and as bandwidth for long ones.
func (n *network) speed(name string, seconds []float64, length int64, wrong int) {
	if length < messageFrom {
		e := estimated(seconds)
		n.add(name, estimate{e.median * 1e6, e.low * 1e6, e.high * 1e6}, "us", 0, wrong)
		return
	}
	n.add(name, spans{seconds}.rate(0, float64(length)/1e9), "GB/s", 0, wrong)
}

// Size formats a length: 64B, 16KiB, 1MiB.
func Size(length int64) string {
	switch {
	case length >= 1<<20 && length%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", length>>20)
	case length >= 1<<10 && length%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", length>>10)
	}
	return fmt.Sprintf("%dB", length)
}
