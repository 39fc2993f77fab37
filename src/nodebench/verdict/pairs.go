package verdict

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/trace"
)

// Pair is the result of messages between two nodes.
type Pair struct {
	A         string  `json:"a"`
	B         string  `json:"b"`
	Latency   float64 `json:"latency_us"` // of 8 bytes, in one direction, by MPI in plain C
	Bandwidth float64 `json:"bandwidth_gb_s"`
	Plain     float64 `json:"bandwidth_c_gb_s"` // of the same messages in plain C, which alternate with ours
	Bytes     int64   `json:"bytes"`            // of a message for the bandwidths
	Wrong     int     `json:"wrong,omitempty"`  // words that came back changed

	// Busy says which of the two hosts others used, and how much. Times of such a pair mean nothing.
	Busy []string `json:"busy,omitempty"`
}

// Tournament returns rounds of pairs of n participants, numbered from 0 on. Each participant meets
// every other one exactly once and is in one pair at a time (the circle method; Kirkman 1847). A
// participant of an odd n pauses in one round.
func Tournament(n int) [][][2]int {
	even := n + n%2
	var rounds [][][2]int
	for r := range even - 1 {
		var round [][2]int
		for i := range even / 2 {
			a, b := (r+i)%(even-1), (r-i+even-1)%(even-1)
			if i == 0 {
				b = even - 1
			}
			if a < n && b < n {
				round = append(round, [2]int{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

// latencyDecides bounds the share of latency in a message's time. At a larger share the message's
// bandwidth is meaningless.
const latencyDecides = 0.2

// PairRows returns the rows of nodes from the results of pairs. A pair is as slow as its slower
// node. So the speed of a node with few pairs is that of its best pair. With all set, nodes have
// met most others, and the speed is the median. Pairs on busy hosts count only for a node that has no
// other pair, and its rows are busy then.
func PairRows(pairs []Pair, all bool) []Row {
	join := slices.Max[[]float64]
	if all {
		join = trace.Median
	}
	var nodes []string
	for _, p := range pairs {
		nodes = append(nodes, p.A, p.B)
	}
	slices.Sort(nodes)
	var rows []Row
	for _, node := range slices.Compact(nodes) {
		var latency, bandwidth, plain []float64
		wrong, decides := 0, false
		own := slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool { return p.A != node && p.B != node })
		disturbed := !slices.ContainsFunc(own, func(p Pair) bool { return p.Busy == nil })
		for _, p := range own {
			wrong += p.Wrong
			if p.Busy != nil && !disturbed {
				continue
			}
			seconds := float64(p.Bytes) / p.Bandwidth * 1e-9
			decides = decides || p.Latency*1e-6 > latencyDecides*seconds
			latency, bandwidth, plain = append(latency, 1/p.Latency), append(bandwidth, p.Bandwidth), append(plain, p.Plain)
		}
		row := func(check string, value float64, unit string) Row {
			r := Row{Node: node, Device: "net", Check: check, Value: value, Unit: unit, Status: Measured, Wrong: wrong}
			if disturbed {
				r.SetBusy(own[0].Busy)
			}
			return r
		}
		rates := []Row{row("mpi_bandwidth", join(bandwidth), "GB/s"), row("mpi_bandwidth_c", join(plain), "GB/s")}
		for i := range rates {
			if decides && !disturbed {
				rates[i].Status, rates[i].Note = NotAvailable, "latency decides how long these messages take"
			}
		}
		rows = append(append(rows, row("mpi_latency", 1/join(latency), "us")), rates...)
	}
	return rows
}

// SwitchRows returns a row for each two leaf switches. Its value is the median bandwidth of the
// pairs of nodes between them. leaf names the switch of each node. One slow node cannot change the
// median of three pairs or more, but a slow link between switches does. Pairs on busy hosts do not count.
func SwitchRows(pairs []Pair, leaf map[string]string) []Row {
	speeds := map[string][]float64{}
	for _, p := range pairs {
		a, b := leaf[p.A], leaf[p.B]
		if a == "" || b == "" || p.Busy != nil {
			continue
		}
		name := fmt.Sprintf("%s-%s", min(a, b), max(a, b))
		speeds[name] = append(speeds[name], p.Bandwidth)
	}
	var rows []Row
	for name, list := range speeds {
		rows = append(rows, Row{Node: name, Device: "switch", Check: "mpi_bandwidth", Value: trace.Median(list), Unit: "GB/s", Status: Measured})
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Node, b.Node) })
	return rows
}
