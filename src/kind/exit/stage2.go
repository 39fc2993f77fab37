package exit

import (
	"fmt"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// stage2 is the step from which on only the classifiers of exits train; everything else is frozen
// (Schuster et al. 2022, section 3.5; t5x contrib/calm, loss_fn_meta_cls). The set of frozen
// parameters is state of their layers. Classifiers learn from the states that forwards leave, so no
// layer has a backward for inputs any more. The last layer's stage sends its labels straight to the
// exits.
type stage2 struct {
	dynamic.Unmeasured
	step  int
	begun bool // in this process
}

// Before freezes what is on this rank: in the stage's first step, or where a run is resumed in it.
func (s *stage2) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	if step < s.step || s.begun {
		return dynamic.Change{}, nil
	}
	if err := t.Settle(); err != nil {
		return dynamic.Change{}, fmt.Errorf("exit: %w", err)
	}
	s.begun = true
	for _, l := range t.Stage.Layers {
		l.Freeze(func(p *model.Param) bool { return !strings.HasPrefix(p.Name, classifier) })
	}
	return dynamic.Change{Kind: "exit.stage2", Structure: true, Detail: map[string]float64{}}, nil
}
