// Package migrate moves layers to their new owners. It is given a stage with the
// layers that it had and returns the stage with those that it has to have, each
// bit for bit the same: all sections of its state.
package migrate

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/tensor"
)

// Moved says what a migration did on all stages of a replica.
type Moved struct {
	Layers int
	Bytes  int64
}

// Run makes the stage that the owners to give this rank from the one that from
// gave it. A layer that stays on its stage does not travel, whichever chunk of it
// it belongs to. The names, lengths and texts of the sections of the layers that
// change their stage go first, and every receiver makes room. If one has no
// memory, all stages keep what they had and Run returns an error. Then the
// sections' memory travels, straight out of and into the layers', those of
// different layers at once; senders free their layers when all stages have
// received theirs; a device that recycles memory (see device.Device) uses it again.
// Collective over the stages of a replica; replicas move alike.
func Run(stages *comm.Group, from, to partition.Owners, x *model.Exec, s *model.Stage) (*model.Stage, Moved, error) {
	for stage := range min(slices.Max(to)+1, stages.Size()) { // those beyond leave
		if len(to.Layers(stage)) == 0 {
			return s, Moved{}, fmt.Errorf("migrate: stage %d would have no layer", stage)
		}
	}
	moves := from.Moved(to)
	if len(moves) == 0 {
		return s, Moved{}, nil
	}
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
	// Work that the device is given from here on sees what has been received; the
	// host and other streams do not yet.
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
	arrived  map[int]*model.Layer // that there is room for, by chain position
	lacking  error                // the first layer there was no room for
	requests []comm.Request
}

// leaves and arrives report whether a layer leaves or arrives at this stage.
func (m *mover) leaves(layer int) bool  { return m.from[layer] == m.stages.Rank() }
func (m *mover) arrives(layer int) bool { return m.to[layer] == m.stages.Rank() }

// announce sends the names, lengths and texts of the sections of a layer that
// leaves.
func (m *mover) announce(layer int) error {
	if !m.leaves(layer) {
		return nil
	}
	sections, err := json.Marshal(m.s.Layer(layer).Sections())
	if err != nil {
		return err
	}
	return m.stages.SendBytes(m.to[layer], comm.TagHeader, sections)
}

// prepare makes room for a layer that arrives.
func (m *mover) prepare(layer int) error {
	if !m.arrives(layer) {
		return nil
	}
	b, err := m.stages.RecvBytes(m.from[layer], comm.TagHeader)
	if err != nil {
		return err
	}
	var sections []model.Section
	if err := json.Unmarshal(b, &sections); err != nil {
		return fmt.Errorf("sections: %w", err)
	}
	l, err := model.Restore(m.s.Config, sections, m.x.Device, m.x.Backend.DType())
	if err != nil {
		if m.lacking == nil {
			m.lacking = err // agree says so on all stages
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

// transfer begins to move the sections of a layer that lie in memory.
func (m *mover) transfer(layer int) error {
	if m.leaves(layer) {
		return m.each(m.s.Layer(layer), func(mem tensor.Mem) (comm.Request, error) {
			return m.stages.Send(m.to[layer], comm.TagSection, mem, m.x.Stream.Record(nil))
		})
	}
	if m.arrives(layer) {
		return m.each(m.arrived[layer], func(mem tensor.Mem) (comm.Request, error) {
			return m.stages.Recv(m.from[layer], comm.TagSection, mem, nil)
		})
	}
	return nil
}

// each begins a message for every section that lies in memory.
func (m *mover) each(l *model.Layer, begin func(tensor.Mem) (comm.Request, error)) error {
	for _, sec := range l.Sections() {
		if sec.Mem.IsZero() {
			continue
		}
		req, err := begin(sec.Mem)
		if err != nil {
			return fmt.Errorf("%s: %w", sec.Name, err)
		}
		m.requests = append(m.requests, req)
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
