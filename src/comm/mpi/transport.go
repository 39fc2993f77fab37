//go:build mpi

package mpi

// #include "../../../csrc/include/dynmo_mpi.h"
import "C"

import (
	"os"
	"time"
	"unsafe"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// abortAfter is how long MPI may take to end the others before this process
// ends regardless: under srun with PMIx an abort may never return, and the
// launcher's --kill-on-bad-exit then does the rest.
const abortAfter = 3 * time.Second

// transport is this process's side of a communicator.
type transport struct {
	group   C.int32_t
	rank    int
	peers   []comm.Peer
	stamped C.int32_t
	idle    []*transfer // that can be used again
}

func (t *transport) Rank() int               { return t.rank }
func (t *transport) Size() int               { return len(t.peers) }
func (t *transport) Peer(rank int) comm.Peer { return t.peers[rank] }

// Stamp makes every message be followed by its stamp.
func (t *transport) Stamp(on bool) {
	t.stamped = 0
	if on {
		t.stamped = 1
	}
}

// transfer is a transfer under way: a comm.Handle. Once it is done it is kept
// for another one.
type transfer struct {
	owner   *transport
	request C.int32_t
}

// newTransfer returns a transfer that is not in use.
func (t *transport) newTransfer() *transfer {
	if len(t.idle) == 0 {
		return &transfer{owner: t}
	}
	h := t.idle[len(t.idle)-1]
	t.idle = t.idle[:len(t.idle)-1]
	return h
}

func (t *transport) Isend(to, tag int, m tensor.Mem, stamp float64) (comm.Handle, error) {
	h := t.newTransfer()
	return h, check(C.dynmo_mpi_send_begin(t.group, host(m), C.int64_t(m.Bytes), C.int32_t(to), C.int32_t(tag),
		t.stamped, C.double(stamp), &h.request))
}

func (t *transport) Irecv(from, tag int, m tensor.Mem) (comm.Handle, error) {
	h := t.newTransfer()
	return h, check(C.dynmo_mpi_recv_begin(t.group, host(m), C.int64_t(m.Bytes), C.int32_t(from), C.int32_t(tag),
		t.stamped, &h.request))
}

// host returns where m begins and panics if MPI could not read it there.
func host(m tensor.Mem) unsafe.Pointer {
	if m.Space != tensor.Host {
		panic("mpi: transfer of device memory")
	}
	return m.Ptr
}

func (h *transfer) Test(spin time.Duration) (bool, comm.Arrival, error) {
	var done C.int32_t
	var stamp C.double
	var bytes C.int64_t
	status := C.dynmo_mpi_test(h.request, C.int64_t(spin), &done, &stamp, &bytes)
	if done != 0 {
		h.owner.idle = append(h.owner.idle, h)
	}
	return done != 0, comm.Arrival{Stamp: float64(stamp), Bytes: int64(bytes)}, check(status)
}

func (t *transport) Alloc(bytes int64) (tensor.Mem, error) {
	if bytes == 0 {
		return tensor.Mem{}, nil
	}
	var p unsafe.Pointer
	if err := check(C.dynmo_mpi_alloc(C.int64_t(bytes), &p)); err != nil {
		return tensor.Mem{}, err
	}
	return tensor.Mem{Ptr: p, Bytes: bytes, Space: tensor.Host}, nil
}

func (t *transport) Free(m tensor.Mem) {
	if m.IsZero() {
		return
	}
	if err := check(C.dynmo_mpi_release(m.Ptr)); err != nil {
		panic("mpi: Free of memory that Alloc did not give")
	}
}

func (t *transport) Split(color, key int) (comm.Transport, error) {
	part := &transport{stamped: t.stamped}
	if err := check(C.dynmo_mpi_split(t.group, C.int32_t(color), C.int32_t(key), &part.group)); err != nil {
		return nil, err
	}
	if part.group < 0 {
		return nil, nil
	}
	var rank, size C.int32_t
	if err := check(C.dynmo_mpi_rank(part.group, &rank, &size)); err != nil {
		return nil, err
	}
	world := make([]C.int32_t, size)
	if err := check(C.dynmo_mpi_world_ranks(part.group, &world[0])); err != nil {
		return nil, err
	}
	byWorld := make(map[int]comm.Peer, len(t.peers))
	for _, p := range t.peers {
		byWorld[p.World] = p
	}
	part.rank = int(rank)
	for _, w := range world {
		part.peers = append(part.peers, byWorld[int(w)])
	}
	return part, nil
}

func (t *transport) Close() error { return check(C.dynmo_mpi_free(t.group)) }

func (t *transport) Abort(status int) {
	time.AfterFunc(abortAfter, func() { os.Exit(status) })
	C.dynmo_mpi_abort(C.int32_t(status))
	os.Exit(status)
}
