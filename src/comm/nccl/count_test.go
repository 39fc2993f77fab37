//go:build cuda && cgo

package nccl

import (
	"errors"
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/comm/local"
	"dynmo/src/device/cuda/cudatest"
)

func init() {
	for _, shape := range shapes {
		roles[shape.name()] = shape.run
	}
}

// shape is a mesh, rank = stage·replicas + replica.
type shape struct{ stages, replicas int }

var shapes = []shape{{1, 4}, {2, 1}, {2, 3}, {4, 2}}

func (s shape) name() string { return fmt.Sprintf("%d stages x %d replicas", s.stages, s.replicas) }

// TestCountOfNeeds counts the communicators, streams and CTAs of small meshes. Their ranks have
// sent each other all messages that a step may have, around the chain too. Ranks with
// communicators at both ends of chains have the counts of NeedsOf, other ranks no more.
func TestCountOfNeeds(t *testing.T) {
	for _, s := range shapes {
		if out, err := limited(t, s.name()); err != nil {
			t.Errorf("%s: %v: %s", s.name(), err, out)
		}
	}
}

func (s shape) run() error {
	ranks := s.stages * s.replicas
	need := NeedsOf(s.stages, s.replicas, ranks, ctas)
	ends := 0 // ranks without a communicator of the chain's ends
	if s.stages > 2 {
		ends = (s.stages - 2) * s.replicas
	}
	err := local.Run(ranks, func(tr comm.Transport) error {
		return gpus.Run(tr, func(r *commtest.Rank) error {
			commtest.Must(r.DeviceTransport.Close())
			o := comm.Options{DeviceTransport: func(t comm.Transport) (comm.DeviceTransport, error) {
				return New(t, r.Device, r.Compute, ctas)
			}}
			base := comm.New(tr, o)
			commtest.Must(base.Barrier()) // all have closed their communicators
			before := held()
			commtest.Must(base.Barrier())
			all := commtest.Value(base.Split(0, tr.Rank()))
			stage, replica := tr.Rank()/s.replicas, tr.Rank()%s.replicas
			chain := commtest.Value(all.SplitAs(comm.Chain, replica, stage))
			row := commtest.Value(all.SplitAs(comm.Row, stage, replica))
			commtest.Must(talk(r, chain, row))
			commtest.Must(base.Barrier())
			now := held()
			want := cudatest.Holding{Streams: ranks*need.Streams - ends, Communicators: ranks*need.Communicators - ends}
			if got := (cudatest.Holding{Streams: now.Streams - before.Streams, Communicators: now.Communicators - before.Communicators}); got != want {
				return fmt.Errorf("all ranks hold %+v, want %+v", got, want)
			}
			commtest.Must(base.Barrier())
			return errors.Join(chain.Close(), row.Close(), all.Close())
		})
	})
	counts, _ := cudatest.Counted()
	if err == nil && counts.CTAs > need.CTAs {
		err = fmt.Errorf("%d CTAs at a time on a GPU, want at most %d", counts.CTAs, need.CTAs)
	}
	return err
}

func held() cudatest.Holding {
	h, _ := cudatest.Held()
	return h
}

// talk sends a message around a chain, and one to every other rank of a row.
func talk(r *commtest.Rank, chain, row *comm.Group) error {
	const bytes = 1000
	m := commtest.Value(r.Memory(4 * bytes))
	if size, me := chain.Size(), chain.Rank(); size > 1 {
		in := commtest.Value(chain.Recv((me+size-1)%size, 0, m.Span(0, bytes), nil))
		out := commtest.Value(chain.Send((me+1)%size, 0, m.Span(bytes, bytes), nil))
		if err := errors.Join(in.Wait(), out.Wait()); err != nil {
			return err
		}
	}
	var sends, recvs []comm.Part
	for other := range row.Size() {
		if other != row.Rank() {
			sends = append(sends, comm.Part{Rank: other, Mem: m.Span(2*bytes, bytes)})
			recvs = append(recvs, comm.Part{Rank: other, Mem: commtest.Value(r.Memory(bytes))})
		}
	}
	return commtest.Value(row.Exchange(0, sends, recvs, nil)).Wait()
}
