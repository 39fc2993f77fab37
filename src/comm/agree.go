package comm

import "fmt"

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

// AnyFailed reports whether any rank has an error. Collective.
func AnyFailed(world *Group, err error) (bool, error) {
	failed := []int64{0}
	if err != nil {
		failed[0] = 1
	}
	err = Allreduce(world, failed, func(a, b int64) int64 { return a + b })
	return failed[0] > 0, err
}
