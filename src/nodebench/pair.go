package nodebench

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// PairBytes is the length of the messages of a pair's bandwidth.
const PairBytes = 4 << 20

// pairRounds is how many rounds the medians of a pair are computed from.
const pairRounds = 7

// Pair measures messages between the two ranks of a world. latency is the microseconds of an 8-byte
// message in plain C. bandwidth and inC are the GB/s of messages of PairBytes, ours and plain C's,
// in alternation. wrong counts the words that came back changed. Only rank 0 gets figures.
// Collective.
func Pair(world *comm.Group, plain PingPong, dev device.Device) (latency, bandwidth, inC float64, wrong int, err error) {
	n := network{bench: newBench(ref.New(tensor.F32), dev), world: world, plain: plain, rounds: Rounds{Count: pairRounds}}
	for _, length := range []int64{8, PairBytes} {
		if err := n.messages(length); err != nil {
			return 0, 0, 0, 0, fmt.Errorf("pair: messages of %d bytes: %w", length, err)
		}
	}
	for _, r := range n.results {
		wrong += r.Wrong
		switch r.Name {
		case "net/message_c_8B":
			latency = r.Value
		case "net/message_" + Size(PairBytes):
			bandwidth = r.Value
		case "net/message_c_" + Size(PairBytes):
			inC = r.Value
		}
	}
	return latency, bandwidth, inC, wrong / 3, nil // all three figures of a length count its wrong words
}
