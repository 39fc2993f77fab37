package comm

import (
	"cmp"
	"errors"
	"fmt"
)

// SharedError is an error that every rank has, for the same reason, so that one of them
// tells it for all.
type SharedError struct {
	error
	Input bool // settings or data are wrong, and nothing was trained
}

// Unwrap returns the error itself.
func (e SharedError) Unwrap() error { return e.error }

// Shared marks an error that every rank has.
func Shared(err error) error { return SharedError{error: err} }

// Input marks what the user gave as wrong.
func Input(err error) error { return SharedError{err, true} }

// Agree returns the same error on every rank if any rank has one: the first by rank. input
// says whether what the user gave is wrong then. Collective.
func Agree(world *Group, err error, input bool) error {
	var first string
	if err != nil {
		who := world.Peer(world.Rank())
		first = fmt.Sprintf("rank %d (host %s): %v", who.World, who.Host, err)
	}
	first, _, err = Fold(world, 0, first, func(text string) []byte { return []byte(text) },
		func(text string, later []byte) string { return cmp.Or(text, string(later)) })
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	told, err := world.Bcast(0, []byte(first))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if len(told) > 0 {
		return SharedError{errors.New(string(told)), input}
	}
	return nil
}

// AnyFailed reports whether any rank has an error. Collective.
func AnyFailed(world *Group, err error) (bool, error) {
	failed := []int64{0}
	if err != nil {
		failed[0] = 1
	}
	err = Allreduce(world, failed, func(a, b int64) int64 { return a + b })
	return failed[0] > 0, err
}
