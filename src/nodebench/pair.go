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

// pairRounds is how many rounds the medians of a pair are taken over.
const pairRounds = 7

// Pair measures messages between the two ranks of a world: the microseconds of one of 8 bytes
// in plain C, and the GB/s of those of PairBytes, ours and plain C's in turn. wrong counts the
// words that came back changed. The figures are rank 0's. Collective.
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
		case "net/message_" + size(PairBytes):
			bandwidth = r.Value
		case "net/message_c_" + size(PairBytes):
			inC = r.Value
		}
	}
	return latency, bandwidth, inC, wrong / 3, nil // each of three figures has the wrong words of a length
}
