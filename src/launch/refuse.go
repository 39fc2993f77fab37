package launch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/comm/mpi"
	"dynmo/src/config"
)

// RefusedError is the error of a rank that leaves the report to rank First: rank First has reported
// why it cannot take part in the run.
type RefusedError struct{ First int }

func (e RefusedError) Error() string {
	return fmt.Sprintf("start: rank %d cannot take part", e.First)
}

// toldBy returns a RefusedError, after time for rank first to report: some launchers end all ranks
// when one has ended.
func toldBy(first int) error {
	time.Sleep(grace / 2)
	return RefusedError{first}
}

// Refuse takes the place of Launch in a process that cannot take part, because its command line or
// settings are wrong. It returns err on the first rank that refuses and a RefusedError on the
// others. So an error that all ranks find is reported once, and an error of a single rank ends all.
// tell reports err where not all ranks start, and exit ends this process then. Collective, where
// ranks are processes.
func Refuse(err error, tell func(error) (status int), exit func(status int)) error {
	if !mpi.Launched() {
		return err
	}
	limit := config.Default().Comm.StartSeconds
	started := mpi.Within(time.Duration(limit*float64(time.Second)), func(error) { exit(tell(err)) })
	defer started()
	t, failed := mpi.Start()
	if failed != nil {
		return err
	}
	first, failed := mpi.FirstRefusing(true)
	_ = mpi.Stop() // the caller reports err, not an error of MPI; the ranks leave MPI together
	if failed == nil && first != t.Rank() {
		return toldBy(first)
	}
	return err
}

// CheckLauncher returns an error if the launcher of this process cannot join its ranks. Rank 0 gets
// the error with its remedy, the other ranks a RefusedError.
func CheckLauncher() error { return byFirst(mpi.CheckLauncher()) }

// byFirst replaces, on ranks other than 0, an error that every rank has by a RefusedError.
func byFirst(err error) error {
	if _, all := errors.AsType[mpi.LaunchError](err); all && mpi.LaunchRank() != 0 {
		return toldBy(0)
	}
	return err
}

// diskFailed reports whether an error is a disk's and not the user's, so that a later start may
// succeed.
func diskFailed(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOSPC, unix.EDQUOT, unix.EIO}, func(e error) bool { return errors.Is(err, e) })
}
