package migrate

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/fault"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/tensor"
)

// Regroup changes the pieces that this replica has of each layer to those of the assignment `to`.
// It is called on the stage that Begin returned, before any other use. lacking is the reason why
// this rank cannot take part; nil: it can. A new holder of a piece receives the weights from the
// piece's previous owner. A new owner also receives masters and moments; Begin must have sent them
// already. Every replica allocates all changing layers before anything is sent. If a rank has no
// memory, all ranks keep their layers and get a *NoRoomError. Collective over all, the ranks that
// move or stay together.
func (r *Rest) Regroup(replicas, all *comm.Group, to piece.Assignment, lacking error, s *model.Stage) (*model.Stage, error) {
	if s.Config.Pieces.Equal(to) {
		return s, lacking
	}
	next := &model.Stage{Config: s.Config}
	next.Config.Pieces = to
	for _, l := range s.Layers {
		l, err := r.prepare(s.Config, next.Config, l)
		if err != nil {
			lacking = cmp.Or(lacking, err)
			break
		}
		next.Layers = append(next.Layers, l)
	}
	r.tell(fault.Announce)
	if lacks, err := comm.AnyFailed(all, lacking); err != nil || lacks {
		free(next, s)
		return s, cmp.Or(err, error(&NoRoomError{lacking}))
	}
	r.tell(fault.Send)
	totals := []int64{0, 0} // bytes received and layers that changed
	for i, l := range s.Layers {
		if next.Layers[i] == l {
			continue
		}
		before, _ := s.Config.Holders(l.Block)
		after, _ := next.Config.Holders(l.Block)
		bytes, err := r.exchange(replicas, before, after, pieces(l), pieces(next.Layers[i]))
		if err != nil {
			return s, fmt.Errorf("migrate: pieces of layer %d: %w", l.ID, err)
		}
		totals[0] += bytes
		if replicas.Rank() == 0 { // counts a layer only once
			totals[1]++
		}
	}
	r.tell(fault.Received)
	free(s, next)
	if err := comm.Allreduce(all, totals, func(a, b int64) int64 { return a + b }); err != nil {
		return next, fmt.Errorf("migrate: %w", err)
	}
	r.tell(fault.Settle)
	r.Moved.Bytes, r.Moved.Layers = r.Moved.Bytes+totals[0], r.Moved.Layers+int(totals[1])
	return next, nil
}

// free frees the layers of s that stage `but` does not have.
func free(s, but *model.Stage) {
	for _, l := range s.Layers {
		if but.Layer(l.ID) != l {
			l.Free()
		}
	}
}

// prepare returns a layer with the pieces of the next assignment. It has the weights, masters and
// moments that this replica already has. If no replica's pieces change it returns the same layer.
func (r *Rest) prepare(present, next model.Config, l *model.Layer) (*model.Layer, error) {
	before, err := present.Holders(l.Block)
	after, wrong := next.Holders(l.Block)
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	if !l.Own() || slices.EqualFunc(before, after, slices.Equal[[]int]) {
		return l, nil
	}
	made, err := l.Like(next, r.x.Device)
	if err != nil {
		return nil, err
	}
	if err := made.Adopt(l, true); err != nil {
		made.Free()
		return nil, err
	}
	return made, nil
}

// exchange sends the pieces of a layer that this replica owned to replicas that lack them, and
// receives those that this replica lacks. had and has are its parameters before and after. It
// returns the received bytes.
func (r *Rest) exchange(replicas *comm.Group, before, after [][]int, had, has []*model.Param) (bytes int64, err error) {
	me, x := replicas.Rank(), r.x
	var sends, recvs []comm.Part
	for _, p := range had {
		if !p.Own {
			continue
		}
		for _, replica := range after[p.Piece] {
			if replica != me {
				for _, mem := range lacks(p, before[p.Piece], after[p.Piece], replica) {
					sends = append(sends, comm.Part{Rank: replica, Mem: mem})
				}
			}
		}
	}
	for _, p := range has {
		if before[p.Piece][0] != me {
			for _, mem := range lacks(p, before[p.Piece], after[p.Piece], me) {
				recvs = append(recvs, comm.Part{Rank: before[p.Piece][0], Mem: mem})
				bytes += mem.Bytes
			}
		}
	}
	exchange, err := replicas.Exchange(comm.TagSection, sends, recvs, x.Stream.Record(nil))
	if err == nil {
		err = exchange.Wait()
	}
	if err == nil {
		err = comm.Await(x.Stream.Record(nil), replicas)
	}
	if err == nil {
		err = x.Stream.Sync()
	}
	return bytes, err
}

// pieces returns the parameters of this replica's pieces of a layer, by piece. Every replica sends
// and receives them in this order.
func pieces(l *model.Layer) []*model.Param {
	list := slices.DeleteFunc(slices.Clone(l.Params()), func(p *model.Param) bool { return !p.Own && !p.Copy })
	slices.SortStableFunc(list, func(a, b *model.Param) int { return a.Piece - b.Piece })
	return list
}

// lacks returns the memory of a piece's parameter that a replica has after a move but not before.
// before and after list the piece's holders; the first one is the owner.
func lacks(p *model.Param, before, after []int, replica int) (list []tensor.Mem) {
	if !slices.Contains(before, replica) {
		list = append(list, p.W)
	}
	if replica == after[0] && replica != before[0] {
		list = append(list, p.Master, p.M, p.V)
	}
	return slices.DeleteFunc(list, tensor.Mem.IsZero)
}
