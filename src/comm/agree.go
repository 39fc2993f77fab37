package comm

import (
	"cmp"
	"errors"
	"fmt"
)

// SharedError is an error that every rank of the world has, for the same reason. So rank 0 alone
// reports the error to the user. An error that only some ranks have is reported by the rank to which
// Board.Claim returns true.
type SharedError struct {
	error
	Input bool // settings or data of the user are wrong, and nothing was trained
}

// Unwrap returns the error itself.
func (e SharedError) Unwrap() error { return e.error }

// Shared returns err as a SharedError. Every rank has the same err.
func Shared(err error) error { return SharedError{error: err} }

// Input returns err as a SharedError that says that settings or data of the user are wrong.
func Input(err error) error { return SharedError{err, true} }

// Agree returns a SharedError on every rank if any rank gives an err, else nil. Its text is the
// error of the lowest such rank, with this rank's number and host. input becomes SharedError.Input.
// Any other error says that the agreement itself failed. Collective.
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
	text, err := world.Bcast(0, []byte(first))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if len(text) > 0 {
		return SharedError{errors.New(string(text)), input}
	}
	return nil
}

// AnyFailed reports whether any rank gives an err. Its own error says that the ranks could not ask
// each other. Collective.
func AnyFailed(world *Group, err error) (bool, error) {
	failed := []int64{0}
	if err != nil {
		failed[0] = 1
	}
	err = Allreduce(world, failed, func(a, b int64) int64 { return a + b })
	return failed[0] > 0, err
}
