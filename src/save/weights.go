package save

import (
	"fmt"
	"runtime/debug"

	"dynmo/src/checkpoint"
	"dynmo/src/model"
)

// Fill replaces the initial weights of a stage's layers by those of a file, model.weights.
func Fill(s *model.Stage, path string) error {
	fail := func(err error) error { return fmt.Errorf("model.weights = %q: %w", path, err) }
	w, err := checkpoint.OpenWeights(path)
	if err != nil {
		return fail(err)
	}
	defer w.Close()
	if w, err = w.Fit(s.Config); err != nil {
		return fail(err)
	}
	for _, l := range s.Layers {
		if err := w.Load(l); err != nil {
			return fail(err)
		}
	}
	debug.FreeOSMemory() // what was read in passing
	return nil
}
