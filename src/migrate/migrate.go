// Package migrate moves layers to their new owners. The input is a rank's stage with its present
// layers, and a plan. The output is the stage with the rank's next layers. Every layer arrives with
// identical bits and all sections of its state.
package migrate

import (
	"encoding/json"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
)

// NoRoomError is the error on every rank if some rank has no memory for its layers. Nothing moved.
type NoRoomError struct {
	Mine error // error of this rank; nil: another rank has no memory
}

func (e *NoRoomError) Error() string {
	if e.Mine == nil {
		return "migrate: nothing moved: another rank has no room for its layers"
	}
	return fmt.Sprintf("migrate: nothing moved: %v", e.Mine)
}

// Run makes the next stage of this rank from its present stage and a plan. First, the names,
// lengths and texts of the moving layers' sections are sent, and every receiver allocates memory.
// If one rank has no memory, all ranks keep their layers and get a *NoRoomError. Then the memory of
// the sections is sent directly from layer to layer: one round of device memory and one of host
// memory. Senders free their layers once all ranks have received theirs. If the device can keep
// freed memory, it keeps that memory for the layers of the next migration. Collective over the
// group.
func Run(group *comm.Group, p Plan, x *model.Exec, s *model.Stage) (*model.Stage, layout.Moved, error) {
	x.Device.Recycle(true)
	defer x.Device.Recycle(false)
	next, rest, err := Begin(group, p, x, s, false)
	if err != nil {
		return s, layout.Moved{}, err
	}
	if len(p.Moves) > 0 {
		if err := group.Barrier(); err != nil {
			return s, layout.Moved{}, fmt.Errorf("migrate: confirm: %w", err)
		}
	}
	return next, rest.Moved, rest.Settle()
}

// Begin is Run, but senders keep their layers until Settle. If behind is true, the sections that
// only the update reads (masters and moments) are sent while the stages work on their next step. Only
// layout.Layout.OptimizerCanFollow allows this. Collective over the group.
func Begin(group *comm.Group, p Plan, x *model.Exec, s *model.Stage, behind bool) (*model.Stage, *Rest, error) {
	m := mover{
		Plan: p, group: group, x: x, s: s, arrived: make(map[int]*model.Layer),
		rest: &Rest{group: group, x: x, reached: p.Reached, ready: x.Stream.Record(nil)},
	}
	if len(p.Moves) == 0 {
		return m.assemble(), m.rest, nil
	}
	m.rest.tell(fault.Announce)
	for _, step := range []func(layout.Move) error{m.announce, m.prepare} {
		for _, move := range p.Moves {
			if err := step(move); err != nil {
				return s, nil, fmt.Errorf("migrate: layer %d: %w", move.Layer, err)
			}
		}
	}
	bytes, err := m.agree(behind)
	if err != nil {
		return s, nil, err
	}
	m.rest.tell(fault.Send)
	for _, late := range []bool{false, true} {
		for _, move := range p.Moves {
			m.transfer(move, late, behind)
		}
	}
	if err := m.needed.begin(m.rest); err != nil {
		return s, nil, err
	}
	if err := m.needed.wait(); err != nil {
		return s, nil, err
	}
	if err := m.rest.sync(); err != nil {
		return s, nil, err
	}
	m.rest.tell(fault.Received)
	m.rest.Moved = layout.Moved{Layers: p.layers(), Bytes: bytes[0], Behind: bytes[1]}
	return m.assemble(), m.rest, nil
}

// mover is the state of one migration.
type mover struct {
	Plan
	group   *comm.Group
	x       *model.Exec
	s       *model.Stage
	arrived map[int]*model.Layer // prepared layers, by chain position
	needed  parts                // sections that the next step reads
	rest    *Rest
}

// announce sends the names, lengths and texts of the sections of a leaving layer.
func (m *mover) announce(move layout.Move) error {
	if move.From != m.group.Rank() {
		return nil
	}
	sections, err := json.Marshal(m.s.Layer(move.Layer).Sections())
	if err != nil {
		return err
	}
	return m.group.SendBytes(move.To, comm.TagHeader, sections)
}

// prepare allocates an arriving layer.
func (m *mover) prepare(move layout.Move) error {
	if move.To != m.group.Rank() {
		return nil
	}
	b, err := m.group.RecvBytes(move.From, comm.TagHeader)
	if err != nil {
		return err
	}
	var sections []model.Section
	if err := json.Unmarshal(b, &sections); err != nil {
		return fmt.Errorf("sections: %w", err)
	}
	l, err := model.Restore(m.Config, sections, m.x.Device, m.x.Backend.DType())
	if err != nil {
		if m.Lacking == nil {
			m.Lacking = err // agree reports it on all stages
		}
		return nil
	}
	m.arrived[move.Layer] = l
	return nil
}

// agree returns the bytes to send, and the part of them that is sent behind the next step. If one
// rank lacks memory, every rank gets a *NoRoomError and frees the memory that it prepared.
func (m *mover) agree(behind bool) ([]int64, error) {
	totals := []int64{0, 0, 0} // bytes, those sent behind the step, and ranks that lack memory
	for _, l := range m.arrived {
		for _, sec := range l.Sections() {
			totals[0] += sec.Mem.Bytes
			if behind && sec.ForUpdate() {
				totals[1] += sec.Mem.Bytes
			}
		}
	}
	if m.Lacking != nil {
		totals[2] = 1
	}
	sum := func(a, b int64) int64 { return a + b }
	if m.Alike != nil {
		if err := comm.Allreduce(m.Alike, totals[2:], sum); err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
	}
	if err := comm.Allreduce(m.group, totals, sum); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if totals[2] == 0 {
		return totals[:2], nil
	}
	for _, l := range m.arrived {
		l.Free()
	}
	return nil, &NoRoomError{m.Lacking}
}

// transfer adds the sections of a moving layer to the round that sends them. late selects the
// sections that only the update reads; otherwise the others are added.
func (m *mover) transfer(move layout.Move, late, behind bool) {
	me := m.group.Rank()
	round := &m.needed
	switch {
	case late && behind && move.To < move.From:
		round = &m.rest.earlier
	case late && behind:
		round = &m.rest.later
	}
	if move.From == me {
		note(round.send, move.To, m.s.Layer(move.Layer), late)
	}
	if move.To == me {
		note(round.receive, move.From, m.arrived[move.Layer], late)
	}
}

// note calls `to` with a part for every section in memory. late selects the sections that only the
// update reads.
func note(to func(comm.Part), rank int, l *model.Layer, late bool) {
	for _, sec := range l.Sections() {
		if !sec.Mem.IsZero() && sec.ForUpdate() == late {
			to(comm.Part{Rank: rank, Mem: sec.Mem})
		}
	}
}

// assemble returns the new stage. The layers that have left stay in rest.
func (m *mover) assemble() *model.Stage {
	next := &model.Stage{Config: m.Config}
	for _, id := range m.Layers {
		l := m.arrived[id]
		if l == nil {
			l = m.s.Layer(id)
		}
		next.Layers = append(next.Layers, l)
	}
	for _, l := range m.s.Layers {
		if next.Layer(l.ID) != l {
			m.rest.left = append(m.rest.left, l)
		}
	}
	return next
}
