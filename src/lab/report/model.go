package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/record"
)

// Model follows the state of a model under its kinds of dynamism while it trains.
type Model struct {
	work   *work
	frozen int // number of frozen layers, from the first on
	ranks  int // the largest number of ranks that trained in a step
}

// NewModel returns the state of a model before its first change.
func NewModel(c config.Config) Model { return Model{work: newWork(c)} }

// Event takes an event.
func (m *Model) Event(e record.Event) {
	if layers, ok := frozenBy(e); ok {
		m.frozen = layers
	}
}

// Words describes the model in a step for a log, with a text for each kind that reports something.
// If the model was packed it adds the number of ranks.
func (m *Model) Words(step record.Metrics) (list []string) {
	if m.ranks = max(m.ranks, step.Ranks); step.Ranks < m.ranks {
		list = append(list, fmt.Sprintf("ranks: %d of %d", step.Ranks, m.ranks))
	}
	seen := m.work.seen([]record.Metrics{step})
	seen.Frozen = m.frozen
	for _, kind := range dynamic.Active(seen.Config) {
		if kind.Words != nil {
			list = append(list, kind.Words(seen)...)
		}
	}
	if share := m.work.blocks(m.work.row(step)); !math.IsNaN(share) {
		list = append(list, m.work.What+" in blocks: "+dynamic.Percent(share))
	}
	return list
}

// frozenBy returns how many layers, from the first on, are frozen after an event. ok is false if
// the event does not change that number.
func frozenBy(e record.Event) (layers int, ok bool) {
	what, _ := e.Detail["what"].(string)
	kinds := strings.Split(what, "+")
	switch {
	case e.Kind != record.Dynamic:
	case slices.Contains(kinds, "freeze"):
		layers, _ := e.Detail["layers"].(float64)
		return int(layers), true
	case slices.Contains(kinds, "thaw"):
		return 0, true
	}
	return 0, false
}
