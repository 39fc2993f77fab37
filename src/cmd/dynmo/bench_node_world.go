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

// siblings returns the process ids of the other ranks on this rank's node.
func (w *nodeWorld) siblings() []int {
	var pids []int
	for rank, host := range w.Hosts() {
		if host == w.hosts[w.node] && rank != w.Rank() {
			pids = append(pids, w.Peer(rank).PID)
		}
	}
	return pids
}

// mostRepeats bounds how often messages are measured on busy hosts.
const mostRepeats = 3

// undisturbed calls measure until no host of the group was busy during it, at most mostRepeats times.
// It returns the hosts that were busy the last time, with what others took. Collective.
func (r *recorder) undisturbed(g *comm.Group, measure func() error) (busy []string, err error) {
	for range mostRepeats {
		shared := func(bool) string { return "" }
		if r.watch != nil {
			shared = r.watch()
		}
		if err := measure(); err != nil {
			return nil, err
		}
		taken := shared(true)
		if taken != "" {
			taken = r.node + ": " + taken
		}
		all, err := g.Allgather([]byte(taken))
		if err != nil {
			return nil, err
		}
		busy = nil
		for _, text := range all {
			if text := string(text); text != "" && !slices.Contains(busy, text) {
				busy = append(busy, text)
			}
		}
		if busy == nil {
			break
		}
	}
	return busy, nil
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
	meetings := verdict.Tournament(len(w.hosts))
	meetings = meetings[:min(mostRounds, len(meetings))]
	r.parts = len(meetings) + 1 // allreduce
	n.measure(r, w.local, w.ranks)
	all, err := w.gather(gathered{Rows: r.rows})
	if err == nil {
		var net gathered
		net, err = n.messages(w, r, meetings)
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
	// leastMPI and mostMPI are the shortest and the longest messages of MPI's allreduce, in bytes. The
	// longest are limited by bandwidth.
	leastMPI, mostMPI = 16, 16 << 20
	// Messages of more than fewBytes are repeated fewTimes, shorter ones manyTimes.
	fewBytes, fewTimes, manyTimes = 256 << 10, 5, 50
)

// messages measures messages between nodes that meet in some rounds, and gathers the results on rank 0.
func (n *nodeFlags) messages(w *nodeWorld, r *recorder, rounds [][][2]int) (gathered, error) {
	var mine gathered
	pairs, err := n.meet(w, r, rounds)
	if err != nil {
		return mine, err
	}
	mine.Pairs = pairs
	if w.Size() > 1 {
		rows, err := n.allreduce(w, r)
		if err != nil {
			return mine, err
		}
		mine.Rows = append(mine.Rows, rows...)
	}
	if err := n.reduceGPUs(w, r, &mine); err != nil {
		return mine, err
	}
	r.idle()
	return w.gather(mine)
}

// allreduce measures MPI's allreduce of several lengths on all ranks. Rank 0 returns the rows.
func (n *nodeFlags) allreduce(w *nodeWorld, r *recorder) (rows []verdict.Row, err error) {
	r.begin("net", "", "mpi_allreduce")
	for _, bytes := range n.sweep(leastMPI, mostMPI) {
		times := manyTimes
		if bytes > fewBytes {
			times = fewTimes
		}
		var seconds []float64
		wrong := 0
		busy, err := r.undisturbed(w.Group, func() (err error) {
			seconds, wrong, err = mpi.Allreduce(int(bytes/8), times)
			return err
		})
		if err != nil {
			return nil, err
		}
		if w.Rank() == 0 {
			rows = append(rows, swept("all", "net", "", "mpi_allreduce", bytes, w.Size(), seconds, wrong, busy)...)
		}
	}
	rows = keepLongest(rows)
	r.add(rows...)
	return rows, nil
}

// sweep returns the lengths of messages from least to most, each four times the one before.
func (n *nodeFlags) sweep(least, most int64) (lengths []int64) {
	for bytes := least; bytes <= most && (!n.small || bytes <= 64*least); bytes *= 4 {
		lengths = append(lengths, bytes)
	}
	return lengths
}

// swept returns the rows of allreduces of one length on some ranks, as nccl-tests define them: the
// microseconds, and the two bandwidths, which are judged. busy names the busy hosts.
func swept(node, device, model, name string, bytes int64, ranks int, seconds []float64, wrong int, busy []string) []verdict.Row {
	median, low, high := nodebench.Quartiles(seconds)
	algorithm, p := float64(bytes)*1e-9, float64(ranks)
	bus := algorithm * 2 * (p - 1) / p
	row := verdict.Row{Node: node, Device: device, Model: model, Status: verdict.Measured, Wrong: wrong}
	if busy != nil {
		row.SetBusy(busy)
	}
	of := func(suffix string, value, low, high float64, unit string) verdict.Row {
		r := row
		r.Check, r.Value, r.Low, r.High, r.Unit = name+"_"+suffix, value, low, high, unit
		return r
	}
	length := of(nodebench.Size(bytes), 1e6*median, 1e6*low, 1e6*high, "us")
	length.Sweep = &verdict.Sweep{Bytes: bytes, Ranks: ranks, Algorithm: algorithm / median, Bus: bus / median}
	return []verdict.Row{length, of("algbw", algorithm/median, algorithm/high, algorithm/low, "GB/s"), of("busbw", bus/median, bus/high, bus/low, "GB/s")}
}

// keepLongest removes the bandwidths of all lengths but the longest, the last one.
func keepLongest(rows []verdict.Row) []verdict.Row {
	last := len(rows) - 2
	var kept []verdict.Row
	for i, r := range rows {
		if r.Sweep != nil || i >= last {
			kept = append(kept, r)
		}
	}
	return kept
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
		if part == nil {
			r.next()
		} else {
			r.begin("net", "", "pair "+names[0]+" "+names[1])
			p, err := n.pair(part, r, names)
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
func (n *nodeFlags) pair(part comm.Transport, r *recorder, names [2]string) (p verdict.Pair, err error) {
	g := comm.New(part, comm.Options{Deadline: n.limit, Patience: n.limit})
	plain := func(peer int, out, in tensor.Mem, messages int) (float64, error) {
		return mpi.PingPong(part, peer, out, in, messages)
	}
	wrong := 0
	busy, err := r.undisturbed(g, func() (err error) {
		p = verdict.Pair{A: names[0], B: names[1], Bytes: nodebench.PairBytes}
		p.Latency, p.Bandwidth, p.Plain, p.Wrong, err = nodebench.Pair(g, plain, devcpu.New(device.NewWall()))
		wrong += p.Wrong
		return err
	})
	p.Wrong, p.Busy = wrong, busy
	return p, err
}
