// Package migrate moves layers to their new owners. It is given a stage with the
// layers that it had and returns the stage with those that it has to have, each
// bit for bit the same: all sections of its state.
package migrate

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/fault"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/tensor"
)

// Moved says what a migration did on all stages of a replica.
type Moved struct {
	Layers int
	Bytes  int64
	Behind int64 // of Bytes: what travels while the stages work on their next step
}

// Run makes the stage that the owners to give this rank from the one that from
// gave it. A layer that stays on its stage does not travel, whichever chunk of it
// it belongs to. The names, lengths and texts of the sections of the layers that
// change their stage go first, and every receiver makes room. If one has no
// memory, all stages keep what they had and Run returns an error. Then the
// sections' memory travels, straight out of and into the layers', those of
// different layers at once; senders free their layers when all stages have
// received theirs; a device that can keep that memory keeps it for the layers
// that arrive with the next migration, and no longer.
// Collective over the stages of a replica; replicas move alike.
func Run(stages *comm.Group, from, to partition.Owners, x *model.Exec, s *model.Stage) (*model.Stage, Moved, error) {
	x.Device.Recycle(true)
	defer x.Device.Recycle(false)
	next, rest, err := Begin(stages, from, to, x, s, false, nil)
	if err != nil || rest.Moved.Layers == 0 {
		return s, Moved{}, err
	}
	if err := stages.Barrier(); err != nil {
		return s, Moved{}, fmt.Errorf("migrate: confirm: %w", err)
	}
	return next, rest.Moved, rest.Settle()
}

// Begin does what Run does, but leaves layers with their senders too, until Settle. If
// behind is set, what only the update reads, masters and moments, travels while the
// stages work on their next step. reached, unless nil, is called in every phase of the move.
// Collective over the stages of a replica.
func Begin(stages *comm.Group, from, to partition.Owners, x *model.Exec, s *model.Stage, behind bool, reached func(fault.Phase)) (*model.Stage, *Rest, error) {
	for stage := range min(slices.Max(to)+1, stages.Size()) { // those beyond leave
		if len(to.Layers(stage)) == 0 {
			return s, nil, fmt.Errorf("migrate: stage %d would have no layer", stage)
		}
	}
	rest := &Rest{stages: stages, x: x, reached: reached}
	moves := from.Moved(to)
	if len(moves) == 0 {
		return s, rest, nil
	}
	m := mover{stages: stages, from: from, to: to, x: x, s: s, arrived: make(map[int]*model.Layer), rest: rest, ready: x.Stream.Record(nil)}
	rest.tell(fault.Announce)
	for _, step := range []func(layer int) error{m.announce, m.prepare} {
		for _, id := range moves {
			if err := step(id); err != nil {
				return s, nil, fmt.Errorf("migrate: layer %d: %w", id, err)
			}
		}
	}
	bytes, err := m.agree(behind)
	if err != nil {
		return s, nil, fmt.Errorf("migrate: nothing moved: %w", err)
	}
	rest.tell(fault.Send)
	for _, late := range []bool{false, true} {
		for _, id := range moves {
			if err := m.transfer(id, late, behind); err != nil {
				return s, nil, fmt.Errorf("migrate: layer %d: %w", id, err)
			}
		}
	}
	for _, req := range m.needed {
		if err := req.Wait(); err != nil {
			return s, nil, fmt.Errorf("migrate: %w", err)
		}
	}
	if err := rest.sync(); err != nil {
		return s, nil, err
	}
	rest.tell(fault.Received)
	rest.Moved = Moved{Layers: len(moves), Bytes: bytes[0], Behind: bytes[1]}
	return m.assemble(), rest, nil
}

// mover is one migration under way.
type mover struct {
	stages   *comm.Group
	from, to partition.Owners
	x        *model.Exec
	s        *model.Stage
	arrived  map[int]*model.Layer // that there is room for, by chain position
	lacking  error                // the first layer there was no room for
	needed   []comm.Request       // messages whose memory the next step reads
	rest     *Rest
	ready    device.Event // the layers' memory may be read
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

// agree returns the bytes that will travel, and those of them that do so behind the next
// step, or an error on every stage if one of them lacks room; what was prepared is freed
// then.
func (m *mover) agree(behind bool) ([]int64, error) {
	totals := []int64{0, 0, 0} // bytes, those behind, stages that lack room
	for _, l := range m.arrived {
		for _, sec := range l.Sections() {
			totals[0] += sec.Mem.Bytes
			if behind && sec.ForUpdate() {
				totals[1] += sec.Mem.Bytes
			}
		}
	}
	if m.lacking != nil {
		totals[2] = 1
	}
	if err := comm.Allreduce(m.stages, totals, func(a, b int64) int64 { return a + b }); err != nil {
		return nil, err
	}
	if totals[2] == 0 {
		return totals[:2], nil
	}
	for _, l := range m.arrived {
		l.Free()
	}
	if m.lacking != nil {
		return nil, m.lacking
	}
	return nil, fmt.Errorf("%d stages have no room for their layers", totals[2])
}

// transfer begins to move the sections of a layer that lie in memory: those that only the
// update reads, or the others.
func (m *mover) transfer(layer int, late, behind bool) error {
	switch {
	case m.leaves(layer):
		l, to := m.s.Layer(layer), m.to[layer]
		send := func(mem tensor.Mem) (comm.Request, error) { return m.stages.Send(to, comm.TagSection, mem, m.ready) }
		if !late || !behind {
			return each(l, late, &m.rest.requests, send)
		}
		sends := &m.rest.later
		if to < m.stages.Rank() {
			sends = &m.rest.earlier
		}
		*sends = append(*sends, func() error { return each(l, late, &m.rest.requests, send) })
	case m.arrives(layer):
		requests := &m.needed
		if late && behind {
			requests = &m.rest.requests
		}
		return each(m.arrived[layer], late, requests, func(mem tensor.Mem) (comm.Request, error) {
			return m.stages.Recv(m.from[layer], comm.TagSection, mem, nil)
		})
	}
	return nil
}

// each begins a message for every section that lies in memory, of those that only the
// update reads or of the others.
func each(l *model.Layer, late bool, requests *[]comm.Request, begin func(tensor.Mem) (comm.Request, error)) error {
	for _, sec := range l.Sections() {
		if sec.Mem.IsZero() || sec.ForUpdate() != late {
			continue
		}
		req, err := begin(sec.Mem)
		if err != nil {
			return fmt.Errorf("%s: %w", sec.Name, err)
		}
		*requests = append(*requests, req)
	}
	return nil
}

// assemble puts together the new stage. What left stays with the rest.
func (m *mover) assemble() *model.Stage {
	me := m.stages.Rank()
	next := &model.Stage{Config: m.s.Config}
	for _, id := range m.to.Layers(me) {
		l := m.arrived[id]
		if l == nil {
			l = m.s.Layer(id)
		}
		next.Layers = append(next.Layers, l)
	}
	for _, l := range m.s.Layers {
		if m.to[l.ID] != me {
			m.rest.left = append(m.rest.left, l)
		}
	}
	return next
}
