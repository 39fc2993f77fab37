package main

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/comm/nccl"
	"dynmo/src/device"
	devcuda "dynmo/src/device/cuda"
	"dynmo/src/nodebench/verdict"
)

// leastNCCL and mostNCCL are the shortest and the longest messages of NCCL's allreduce, in bytes. The
// longest are limited by bandwidth.
const leastNCCL, mostNCCL = 1 << 10, 256 << 20

// reduceGPUs measures NCCL's allreduce on the GPUs of each node and then on the GPUs of all nodes.
// Every rank must have a GPU of its own.
func (n *nodeFlags) reduceGPUs(w *nodeWorld, r *recorder, mine *gathered) error {
	visible := 0
	if devcuda.Built {
		visible, _ = devcuda.Visible() // measureGPUs reports its error
	}
	own := ""
	var dev device.Device
	if visible > 0 && w.ranks <= visible {
		d, err := devcuda.New(device.NewWall(), devcuda.Pick(w.local, visible))
		if err != nil {
			return err
		}
		defer d.Close()
		dev, own = d, d.Describe().Name
	}
	all, err := w.Allgather([]byte(own))
	if err != nil {
		return err
	}
	ranks := 0
	for _, name := range all {
		if len(name) > 0 {
			ranks++
		}
	}
	switch {
	case ranks == 0 && visible == 0:
		return nil
	case ranks < w.Size():
		r.unavailable("gpus", "", "nccl_allreduce", errors.New("not every process has a GPU of its own"))
		if w.Rank() == 0 {
			mine.Rows = append(mine.Rows, r.rows[len(r.rows)-1])
		}
		return nil
	}
	part, err := w.t.Split(w.node, w.Rank())
	if err != nil {
		return err
	}
	onNode := comm.New(part, comm.Options{Deadline: n.limit, Patience: n.limit})
	for _, of := range []struct {
		group *comm.Group
		node  string
	}{{onNode, r.node}, {w.Group, "all"}} {
		if of.node == "all" && len(w.hosts) == 1 {
			break // one node: the ranks of the first measurement again
		}
		rows, err := n.reduce(r, of.group, of.node, own, dev)
		if err != nil {
			return err
		}
		mine.Rows = append(mine.Rows, rows...)
	}
	return onNode.Close()
}

// reduce measures NCCL's allreduce on the ranks of a group. The first rank returns the rows. A
// failure of NCCL is a row; err means that a rank is gone. Collective.
func (n *nodeFlags) reduce(r *recorder, g *comm.Group, node, gpu string, dev device.Device) ([]verdict.Row, error) {
	bytes := n.sweep(leastNCCL, mostNCCL)
	lengths := make([]int, len(bytes))
	for i := range bytes {
		lengths[i] = int(bytes[i] / 4)
	}
	model := fmt.Sprintf("%s x %d", gpu, g.Size())
	r.begin("gpus", model, "nccl_allreduce")
	share := func(id []byte) ([]byte, error) { return g.Bcast(0, id) }
	seconds, wrong, err := nccl.Allreduce(share, g.Rank(), g.Size(), dev, lengths, gpuRounds)
	failed, gone := comm.AnyFailed(g, err)
	switch {
	case gone != nil:
		return nil, gone
	case g.Rank() != 0:
		return nil, nil
	case err == nil && failed:
		err = errors.New("another rank could not take part")
	}
	if err != nil {
		return []verdict.Row{{Node: node, Device: "gpus", Model: model, Check: "nccl_allreduce", Status: verdict.NotAvailable, Note: err.Error()}}, nil
	}
	var rows []verdict.Row
	for i := range bytes {
		rows = append(rows, swept(node, "gpus", model, "nccl_allreduce", bytes[i], g.Size(), seconds[i], wrong[i], nil)...)
	}
	if rows = keepLongest(rows); g.Size() == 1 {
		rows = rows[:len(rows)-1] // one rank: no bus traffic
	}
	r.add(rows...)
	return rows, nil
}
