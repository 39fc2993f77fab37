// Package migrate moves layers to their new owners. What comes in is a stage
// with the layers that it had; what goes out is the stage with those it has now, with the same layers bit for bit: weights, moments, counters, sparse
// structure.
package migrate

import (
	"encoding/json"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/partition"
)

// Moved says what a migration did on all stages of a replica.
type Moved struct {
	Layers int
	Bytes  int64
}

// Run makes the stage that the owners to give this rank from the one that from
// gave it. A layer that stays on its stage does not travel, whichever chunk of it
// it belongs to. Headers of the layers that change their stage go first, and
// every receiver makes room. If one has no memory, all stages keep what they
// had and Run returns an error. Then the sections travel, straight out of and
// into the layers' memory, those of different layers at once; senders free
// their layers when all stages have received theirs; a device that can keep that
// memory keeps it for what comes with the next migration, and no longer.
// Collective over the stages of a replica; replicas move alike.
func Run(stages *comm.Group, from, to partition.Owners, x *model.Exec, s *model.Stage) (*model.Stage, Moved, error) {
	for stage := range stages.Size() {
		if len(to.Layers(stage)) == 0 {
			return s, Moved{}, fmt.Errorf("migrate: stage %d would have no layer", stage)
		}
	}
	moves := from.Moved(to)
	if len(moves) == 0 {
		return s, Moved{}, nil
	}
	x.Device.Recycle(true)
	defer x.Device.Recycle(false)
	m := mover{stages: stages, from: from, to: to, x: x, s: s, arrived: make(map[int]*model.Layer)}
	for _, step := range []func(layer int) error{m.announce, m.prepare} {
		for _, id := range moves {
			if err := step(id); err != nil {
				return s, Moved{}, fmt.Errorf("migrate: layer %d: %w", id, err)
			}
		}
	}
	bytes, err := m.agree()
	if err != nil {
		return s, Moved{}, fmt.Errorf("migrate: nothing moved: %w", err)
	}
	for _, id := range moves {
		if err := m.transfer(id); err != nil {
			return s, Moved{}, fmt.Errorf("migrate: layer %d: %w", id, err)
		}
	}
	for _, req := range m.requests {
		if err := req.Wait(); err != nil {
			return s, Moved{}, fmt.Errorf("migrate: %w", err)
		}
	}
	// What has been received is there for the device's work to come, and not yet for
	// the host or for other streams.
	if err := comm.Await(x.Stream.Record(nil), stages); err != nil {
		return s, Moved{}, fmt.Errorf("migrate: %w", err)
	}
	if err := x.Stream.Sync(); err != nil {
		return s, Moved{}, fmt.Errorf("migrate: %w", err)
	}
	if err := stages.Barrier(); err != nil {
		return s, Moved{}, fmt.Errorf("migrate: confirm: %w", err)
	}
	return assemble(stages.Rank(), to, s, m.arrived), Moved{Layers: len(moves), Bytes: bytes}, nil
}

// mover is one migration under way.
type mover struct {
	stages   *comm.Group
	from, to partition.Owners
	x        *model.Exec
	s        *model.Stage
	arrived  map[int]*model.Layer // made room for, by chain position
	lacking  error                // the first layer there was no room for
	requests []comm.Request
}

// leaves and comes report whether a layer leaves or comes to this stage.
func (m *mover) leaves(layer int) bool { return m.from[layer] == m.stages.Rank() }
func (m *mover) comes(layer int) bool  { return m.to[layer] == m.stages.Rank() }

// announce sends the header of a layer that leaves.
func (m *mover) announce(layer int) error {
	if !m.leaves(layer) {
		return nil
	}
	header, err := json.Marshal(m.s.Layer(layer).Header())
	if err != nil {
		return err
	}
	return m.stages.SendBytes(m.to[layer], comm.TagHeader, header)
}

// prepare makes room for a layer that comes.
func (m *mover) prepare(layer int) error {
	if !m.comes(layer) {
		return nil
	}
	b, err := m.stages.RecvBytes(m.from[layer], comm.TagHeader)
	if err != nil {
		return err
	}
	var h model.Header
	if err := json.Unmarshal(b, &h); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	l, err := model.EmptyLayer(m.s.Config, h, m.x.Device, m.x.Backend.DType())
	if err != nil {
		if m.lacking == nil {
			m.lacking = err // told to all by agree
		}
		return nil
	}
	m.arrived[layer] = l
	return nil
}

// agree returns the bytes that will travel, or an error on every stage if one
// of them lacks room; what was prepared is freed then.
func (m *mover) agree() (int64, error) {
	totals := []int64{0, 0} // bytes, stages that lack room
	for _, l := range m.arrived {
		for _, sec := range l.Sections() {
			totals[0] += sec.Mem.Bytes
		}
	}
	if m.lacking != nil {
		totals[1] = 1
	}
	if err := comm.Allreduce(m.stages, totals, func(a, b int64) int64 { return a + b }); err != nil {
		return 0, err
	}
	if totals[1] == 0 {
		return totals[0], nil
	}
	for _, l := range m.arrived {
		l.Free()
	}
	if m.lacking != nil {
		return 0, m.lacking
	}
	return 0, fmt.Errorf("%d stages have no room for their layers", totals[1])
}

// transfer begins to move the sections of a layer.
func (m *mover) transfer(layer int) error {
	if m.leaves(layer) {
		for _, sec := range m.s.Layer(layer).Sections() {
			req, err := m.stages.Send(m.to[layer], comm.TagSection, sec.Mem, m.x.Stream.Record(nil))
			if err != nil {
				return fmt.Errorf("%s: %w", sec.Name, err)
			}
			m.requests = append(m.requests, req)
		}
	}
	if m.comes(layer) {
		for _, sec := range m.arrived[layer].Sections() {
			req, err := m.stages.Recv(m.from[layer], comm.TagSection, sec.Mem, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", sec.Name, err)
			}
			m.requests = append(m.requests, req)
		}
	}
	return nil
}

// assemble puts together the new stage and frees what left.
func assemble(me int, to partition.Owners, s *model.Stage, arrived map[int]*model.Layer) *model.Stage {
	next := &model.Stage{Config: s.Config}
	for _, id := range to.Layers(me) {
		l := arrived[id]
		if l == nil {
			l = s.Layer(id)
		}
		next.Layers = append(next.Layers, l)
	}
	for _, l := range s.Layers {
		if to[l.ID] != me {
			l.Free()
		}
	}
	return next
}
