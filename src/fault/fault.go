// Package fault has a rank fail on purpose, to see what becomes of the run. What comes in
// is the text of DYNMO_FAULT, such as segv@12:3; what goes out is where the rank fails, and
// its end, or how much slower it is.
package fault

import (
	"os"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that wants a fault.
const Variable = "DYNMO_FAULT"

// Kind is how a rank fails.
type Kind string

// Kinds of faults.
const (
	Kill  Kind = "kill"  // SIGKILL
	Segv  Kind = "segv"  // SIGSEGV, of which Go lets no program recover where it is not Go's own code
	Exit  Kind = "exit"  // the process ends itself, with status 3, and tells no one
	Panic Kind = "panic" // of Go
	Abort Kind = "abort" // MPI_Abort, with status 1
	stop  Kind = "stop"  // SIGSTOP: the process stays, and does nothing
	hang  Kind = "hang"  // the rank sleeps for ever, in a process that lives
	Slow  Kind = "slow"  // the rank computes so many times longer than it would
)

var kinds = []Kind{Kill, Segv, Exit, Panic, Abort, stop, hang, Slow}

// Fault is a rank's failure: in a step, in a phase of writing the checkpoint after so many
// steps, or in a phase of the first move of layers after this step or a later one.
type Fault struct {
	Kind   Kind
	Step   int
	Last   int   // of Slow: the last slow step
	Phase  Phase // "" in the step itself
	Rank   int
	Factor float64 // of Slow: how many times longer
}

// Hits reports whether the fault is this rank's, in this step. No fault is in none.
func (f *Fault) Hits(step, rank int) bool {
	return f != nil && f.Kind != Slow && f.Phase == "" && f.Step == step && f.Rank == rank
}

// FactorIn returns how many times longer the rank of a Slow fault computes in a step.
func (f *Fault) FactorIn(step int) float64 {
	if f.Step <= step && step <= f.Last {
		return f.Factor
	}
	return 1
}

// Strike ends or stops this process in the way of the fault's kind. abort ends the world,
// and exit this process.
func (f *Fault) Strike(abort, exit func(status int)) {
	switch f.Kind {
	case Segv:
		signal(os.Getpid(), unix.SIGSEGV)
	case Exit:
		exit(3)
	case Panic:
		panic("fault: " + Variable + " wants this panic")
	case Abort:
		abort(1)
	case stop:
		signal(os.Getpid(), unix.SIGSTOP)
	case hang:
		select {}
	default:
		signal(os.Getpid(), unix.SIGKILL)
	}
}

// Killer returns what a rank is to call in every phase of writing the checkpoint after so
// many steps, or of a move after so many; nil where no fault is wanted there. In the phases
// of rank 0 it is rank 0 that kills or stops the fault's rank, and stays in that phase: what
// is on disk is what a run leaves whose rank is lost just then. pid returns the process of a
// rank, 0 if it is on another host, where nothing is done.
func (f *Fault) Killer(steps, rank int, pid func(rank int) int) func(Phase) {
	switch {
	case f == nil || f.Phase == "" || f.Rank != rank && !(rank == 0 && f.Phase.OfRank0()):
		return nil
	case f.Step != steps && (f.Phase.OfCheckpoint() || steps < f.Step):
		return nil
	}
	with := unix.SIGKILL
	if f.Kind == stop {
		with = unix.SIGSTOP
	}
	return func(p Phase) {
		if victim := pid(f.Rank); p == f.Phase && victim > 0 {
			signal(victim, with)
		}
	}
}

// signal sends a signal after which this process does no more: it is its own, or the end of
// the other one ends the run.
func signal(pid int, s unix.Signal) {
	if unix.Kill(pid, s) == nil {
		select {}
	}
}
