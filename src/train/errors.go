package train

import (
	"fmt"

	"dynmo/src/comm"
)

// SharedError is an error that every rank has, for the same reason, so that
// one of them tells it for all.
type SharedError struct {
	error
	Input bool // settings or data are wrong, and nothing was trained
}

// Unwrap returns the error itself.
func (e SharedError) Unwrap() error { return e.error }

// Input marks what the user gave as wrong.
func Input(err error) error { return SharedError{err, true} }

// UnsavedError is the end of a run that could not write so many checkpoints in a row.
type UnsavedError struct{ error }

// Unwrap returns the error itself.
func (e UnsavedError) Unwrap() error { return e.error }

// Agree returns the same error on every rank if any rank has one: the first by
// rank. input says whether what the user gave is wrong then. Collective.
func Agree(world *comm.Group, err error, input bool) error {
	var text string
	if err != nil {
		text = err.Error()
	}
	all, err := world.Allgather([]byte(text))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for rank, b := range all {
		if len(b) > 0 {
			who := world.Peer(rank)
			return SharedError{fmt.Errorf("rank %d (host %s): %s", who.World, who.Host, b), input}
		}
	}
	return nil
}
