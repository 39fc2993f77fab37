package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/nodebench"
	"dynmo/src/nodebench/verdict"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// nodeWorld is the group of all ranks of bench node, with the node of each.
type nodeWorld struct {
	*comm.Group
	t       comm.Transport
	hosts   []string // by node, in the order of their first ranks
	leaders []int    // by node: its first rank
	node    int      // of this rank
	local   int      // this rank's number on its node
	ranks   int      // on this rank's node
}

func newNodeWorld(t comm.Transport, patience time.Duration) *nodeWorld {
	w := &nodeWorld{Group: comm.New(t, comm.Options{Deadline: patience, Patience: patience}), t: t}
	for rank, host := range w.Hosts() {
		if !slices.Contains(w.hosts, host) {
			w.hosts, w.leaders = append(w.hosts, host), append(w.leaders, rank)
		}
		if host == w.Peer(w.Rank()).Host {
			if rank < w.Rank() {
				w.local++
			}
			w.ranks++
		}
	}
	w.node = slices.Index(w.hosts, w.Peer(w.Rank()).Host)
	return w
}

// gathered is the message of a rank's results to rank 0.
type gathered struct {
	Rows  []verdict.Row
	Pairs []verdict.Pair
}

// gather returns the results of all ranks, on rank 0.
func (w *nodeWorld) gather(mine gathered) (all gathered, err error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return all, err
	}
	parts, err := w.Gather(0, text)
	if err != nil {
		return all, err
	}
	for _, part := range parts {
		var g gathered
		if err := json.Unmarshal(part, &g); err != nil {
			return all, err
		}
		all.Rows, all.Pairs = append(all.Rows, g.Rows...), append(all.Pairs, g.Pairs...)
	}
	return all, nil
}

// together measures the nodes, then the messages between them, and judges on rank 0. judged is the
// verdict. If ranks are gone, err says so, and the verdict covers the remaining results.
func (n *nodeFlags) together(c *cobra.Command, w *nodeWorld, r *recorder) (judged, err error) {
	n.measure(r, w.local, w.ranks)
	all, err := w.gather(gathered{Rows: r.rows})
	if err == nil {
		var net gathered
		net, err = n.messages(w, r)
		all.Pairs = net.Pairs
		rows := verdict.PairRows(net.Pairs, false)
		all.Rows = append(append(all.Rows, net.Rows...), rows...)
		if w.Rank() == 0 {
			r.add(rows...)
		}
	}
	if closed := r.close(); err == nil {
		err = closed
	}
	if w.Rank() == 0 {
		judged = n.conclude(c, all.Rows, all.Pairs, w.hosts)
	}
	return judged, err
}

const (
	// mostRounds is how many partners a node is paired with. A pair is as slow as its slower node,
	// so a healthy node needs one healthy partner of three.
	mostRounds = 3
	// allreduceBytes is the length of MPI's allreduce. Messages of this length are limited by
	// bandwidth.
	allreduceBytes = 16 << 20
	allreduceTimes = 5
)

// messages measures messages between nodes, and gathers the results on rank 0.
func (n *nodeFlags) messages(w *nodeWorld, r *recorder) (gathered, error) {
	var mine gathered
	rounds := verdict.Tournament(len(w.hosts))
	pairs, err := n.meet(w, r, rounds[:min(mostRounds, len(rounds))])
	if err != nil {
		return mine, err
	}
	mine.Pairs = pairs
	if w.Size() > 1 {
		r.begin("net", "", "mpi_allreduce")
		elements := allreduceBytes / 8
		if n.small {
			elements = 1 << 10
		}
		seconds, wrong, err := mpi.Allreduce(elements, allreduceTimes)
		if err != nil {
			return mine, err
		}
		if w.Rank() == 0 {
			rows := allreduceRows("all", "net", "", "mpi_allreduce", 8*elements, w.Size(), seconds, wrong)
			mine.Rows = append(mine.Rows, rows...)
			r.add(rows...)
		}
	}
	if err := n.reduceGPUs(w, r, &mine); err != nil {
		return mine, err
	}
	r.idle()
	return w.gather(mine)
}

// allreduceRows returns the rows of an allreduce of some bytes on some ranks, as nccl-tests defines
// them. algbw is bytes over seconds. busbw is algbw·2·(ranks-1)/ranks, which can be compared
// between numbers of ranks.
func allreduceRows(node, device, model, name string, bytes, ranks int, seconds []float64, wrong int) []verdict.Row {
	algorithm, p := float64(bytes)/trace.Median(seconds)*1e-9, float64(ranks)
	row := func(suffix string, value float64) verdict.Row {
		return verdict.Row{Node: node, Device: device, Model: model, Check: name + suffix, Value: value, Unit: "GB/s", Status: verdict.Measured, Wrong: wrong}
	}
	return []verdict.Row{row("_algbw", algorithm), row("_busbw", algorithm*2*(p-1)/p)}
}

// meet measures pairs of nodes, round by round. It returns the pairs whose first node is this
// rank's. Only the first rank of each node takes part.
func (n *nodeFlags) meet(w *nodeWorld, r *recorder, rounds [][][2]int) ([]verdict.Pair, error) {
	var pairs []verdict.Pair
	for _, round := range rounds {
		color := comm.Outside
		var names [2]string
		for i, p := range round {
			if w.local == 0 && (p[0] == w.node || p[1] == w.node) {
				color, names = i, [2]string{w.hosts[p[0]], w.hosts[p[1]]}
			}
		}
		part, err := w.t.Split(color, w.node)
		if err != nil {
			return nil, err
		}
		if part != nil {
			r.begin("net", "", "pair "+names[0]+" "+names[1])
			p, err := n.pair(part, names)
			if err != nil {
				return nil, fmt.Errorf("pair %s, %s: %w", names[0], names[1], err)
			}
			if part.Rank() == 0 {
				pairs = append(pairs, p)
			}
			if err := part.Close(); err != nil {
				return nil, err
			}
		}
		if err := w.Barrier(); err != nil { // a barrier, because a node is in one pair at a time
			return nil, err
		}
	}
	return pairs, nil
}

// pair measures messages between two nodes.
func (n *nodeFlags) pair(part comm.Transport, names [2]string) (verdict.Pair, error) {
	g := comm.New(part, comm.Options{Deadline: n.limit, Patience: n.limit})
	plain := func(peer int, out, in tensor.Mem, messages int) (float64, error) {
		return mpi.PingPong(part, peer, out, in, messages)
	}
	latency, bandwidth, inC, wrong, err := nodebench.Pair(g, plain, devcpu.New(device.NewWall()))
	return verdict.Pair{A: names[0], B: names[1], Latency: latency, Bandwidth: bandwidth, Plain: inC, Bytes: nodebench.PairBytes, Wrong: wrong}, err
}
