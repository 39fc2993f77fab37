// Package migrate moves layers to their new owners. In come the stage with the present layers of a
// rank, and a plan. Out goes the stage with the rank's next layers. Every layer arrives bit for bit
// as it was, with all sections of its state.
package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
)

// Moved says what a migration did on all ranks of its group.
type Moved struct {
	Layers int
	Bytes  int64
	Behind int64 // of Bytes: what travels while the stages work on their next step

	Refused string // why nothing moved, as all ranks have it; "" if something did
}

// NoRoomError is what every rank gets where one has no memory for its layers: nothing
// moved.
type NoRoomError struct {
	Mine error // of this rank; nil: another's
}

func (e *NoRoomError) Error() string {
	if e.Mine == nil {
		return "migrate: nothing moved: another rank has no room for its layers"
	}
	return fmt.Sprintf("migrate: nothing moved: %v", e.Mine)
}

// Run makes the next stage of this rank from its present stage and a plan. First the names, lengths
// and texts of the moving layers' sections travel, and every receiver makes room. If one rank has
// no memory, all ranks keep their layers and get a *NoRoomError. Then the memory of the sections
// travels, straight from layer to layer, in one round of device memory and one of host memory.
// Senders free their layers when all ranks have received theirs. A device that can keep freed
// memory keeps it until the next migration, for the layers that arrive then. Collective over the
// group.
func Run(group *comm.Group, p Plan, x *model.Exec, s *model.Stage) (*model.Stage, Moved, error) {
	x.Device.Recycle(true)
	defer x.Device.Recycle(false)
	next, rest, err := Begin(group, p, x, s, false)
	if err != nil {
		return s, Moved{}, err
	}
	if len(p.Moves) > 0 {
		if err := group.Barrier(); err != nil {
			return s, Moved{}, fmt.Errorf("migrate: confirm: %w", err)
		}
	}
	return next, rest.Moved, rest.Settle()
}

// Begin does what Run does, but leaves layers with their senders too, until Settle. If
// behind is set, what only the update reads, masters and moments, travels while the
// stages work on their next step. Collective over the group.
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
	m.rest.Moved = Moved{Layers: p.layers(), Bytes: bytes[0], Behind: bytes[1]}
	return m.assemble(), m.rest, nil
}

// mover is one migration under way.
type mover struct {
	Plan
	group   *comm.Group
	x       *model.Exec
	s       *model.Stage
	arrived map[int]*model.Layer // that there is room for, by chain position
	needed  parts                // whose memory the next step reads
	rest    *Rest
}

// announce sends the names, lengths and texts of the sections of a layer that
// leaves.
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

// prepare makes room for a layer that arrives.
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
			m.Lacking = err // agree says so on all stages
		}
		return nil
	}
	m.arrived[move.Layer] = l
	return nil
}

// agree returns the bytes that will travel, and those among them that travel behind the next step.
// If one rank lacks room, every rank gets a *NoRoomError and frees the memory that it prepared.
func (m *mover) agree(behind bool) ([]int64, error) {
	totals, lacking := []int64{0, 0}, []int64{0} // bytes and those behind; ranks that lack room
	for _, l := range m.arrived {
		for _, sec := range l.Sections() {
			totals[0] += sec.Mem.Bytes
			if behind && sec.ForUpdate() {
				totals[1] += sec.Mem.Bytes
			}
		}
	}
	if m.Lacking != nil {
		lacking[0] = 1
	}
	sum := func(a, b int64) int64 { return a + b }
	if err := comm.Allreduce(m.group, totals, sum); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if err := comm.Allreduce(cmp.Or(m.Alike, m.group), lacking, sum); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if lacking[0] == 0 {
		return totals, nil
	}
	for _, l := range m.arrived {
		l.Free()
	}
	return nil, &NoRoomError{m.Lacking}
}

// transfer adds the moving sections of a layer to the round that they travel in: with late those
// that only the update reads, else the others.
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

// note gives to a part for every section that lies in memory, of those that only the update
// reads or of the others.
func note(to func(comm.Part), rank int, l *model.Layer, late bool) {
	for _, sec := range l.Sections() {
		if !sec.Mem.IsZero() && sec.ForUpdate() == late {
			to(comm.Part{Rank: rank, Mem: sec.Mem})
		}
	}
}

// assemble puts together the new stage. What left stays with the rest.
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
