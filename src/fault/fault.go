// Package fault has a rank fail on purpose, to see what becomes of the run. What comes in
// is the text of DYNMO_FAULT, such as segv@12:3; what goes out is where the rank fails, and
// its end, or how much slower it is.
package fault

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that wants a fault.
const Variable = "DYNMO_FAULT"

// Kind is how a rank fails.
type Kind string

// Kinds of faults.
const (
	Kill  Kind = "kill"  // SIGKILL
	Segv  Kind = "segv"  // SIGSEGV: outside Go's own code Go lets no program recover from it
	Exit  Kind = "exit"  // the process ends itself, with status 3, and tells no one
	Panic Kind = "panic" // of Go
	Abort Kind = "abort" // MPI_Abort, with status 1
	stop  Kind = "stop"  // SIGSTOP: the process stays, and does nothing
	hang  Kind = "hang"  // the rank sleeps for ever, in a process that lives
	Slow  Kind = "slow"  // the rank computes longer, by a factor
)

var kinds = []Kind{Kill, Segv, Exit, Panic, Abort, stop, hang, Slow}

// Fault is a rank's failure. It happens in a step, or in a phase of writing the checkpoint after a
// number of steps. Or it happens in a phase of the first move of layers after this step or a later
// one.
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

// Killer returns the function that a rank calls in every phase of writing the checkpoint, or of a
// move, after the given steps. It returns nil where no fault is wanted. In the phases of rank 0,
// rank 0 kills or stops the fault's rank and stays in that phase. So the files are those of a run
// that lost the rank at that moment. pid returns the process of a rank, 0 if it is on another host;
// there Killer does nothing.
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

// Phase is a moment in the writing of a checkpoint, in a move of layers, or in the release of ranks
// after a move.
type Phase string

// Phases of a checkpoint, in order. The first three are of each rank's files, the others of
// rank 0.
const (
	Open     Phase = "open"     // a file is made
	Write    Phase = "write"    // the last bytes of a file are not yet written
	Sync     Phase = "sync"     // a file is written, and not yet on disk
	Manifest Phase = "manifest" // the manifest is on disk
	Rename   Phase = "rename"   // before the checkpoint gets its name
	Renamed  Phase = "renamed"  // after that
	Latest   Phase = "latest"   // before LATEST names it
	Prune    Phase = "prune"    // before older checkpoints are removed
)

// Phases of a move, in order: of each rank.
const (
	Announce Phase = "announce" // before layers that leave are announced
	Send     Phase = "send"     // there is room for all, and nothing is sent yet
	Received Phase = "received" // what the next step reads is here, and not yet taken over
	Settle   Phase = "settle"   // before what left is freed
)

// Phases that follow a move to fewer ranks, in order. The last is of rank 0.
const (
	Resized  Phase = "resized"  // the ranks that stay have a world of their own
	Parked   Phase = "parked"   // a rank without a place waits for what rank 0 orders
	Goodbye  Phase = "goodbye"  // it is ordered to go, and has not said so
	Scontrol Phase = "scontrol" // all have said so, and their nodes are not yet given back
)

var ofCheckpoint = []Phase{Open, Write, Sync, Manifest, Rename, Renamed, Latest, Prune}

// Phases returns the phases of a checkpoint, in order.
func Phases() []Phase { return slices.Clone(ofCheckpoint) }

// MovePhases returns the phases of a move, in order.
func MovePhases() []Phase { return []Phase{Announce, Send, Received, Settle} }

// leavingPhases returns the phases that follow a move to fewer ranks, in order.
func leavingPhases() []Phase { return []Phase{Resized, Parked, Goodbye, Scontrol} }

// all returns every phase.
func all() []Phase { return slices.Concat(Phases(), MovePhases(), leavingPhases()) }

// OfCheckpoint reports whether the phase is one of a checkpoint.
func (p Phase) OfCheckpoint() bool { return slices.Contains(ofCheckpoint, p) }

// OfRank0 reports whether only rank 0 comes through the phase.
func (p Phase) OfRank0() bool {
	return p == Scontrol || slices.Index(ofCheckpoint, p) >= slices.Index(ofCheckpoint, Manifest)
}
