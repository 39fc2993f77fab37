// Package fault makes a rank fail on purpose, to test the reaction of a run. In comes the text of
// DYNMO_FAULT, such as segv@12:3. Out come the rank and the moment of the fault, and the failure
// itself: the end of the process, or a slower rank.
package fault

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that asks for a fault.
const Variable = "DYNMO_FAULT"

// Kind is how a rank fails.
type Kind string

// Kinds of faults.
const (
	Kill  Kind = "kill"  // SIGKILL
	Segv  Kind = "segv"  // SIGSEGV; a Go program cannot recover from it outside Go's own code
	Exit  Kind = "exit"  // the process ends itself with status 3, without a message
	Panic Kind = "panic" // a Go panic
	Abort Kind = "abort" // MPI_Abort, with status 1
	stop  Kind = "stop"  // SIGSTOP: the process exists but does nothing
	hang  Kind = "hang"  // the rank sleeps for ever, and its process lives
	Slow  Kind = "slow"  // the rank computes more slowly, by a factor
)

var kinds = []Kind{Kill, Segv, Exit, Panic, Abort, stop, hang, Slow}

// Fault is a failure of one rank. Without a Phase it happens in step Step. Otherwise it happens in
// that phase: of writing the checkpoint after Step steps, or of the first move of layers after this
// or a later step.
type Fault struct {
	Kind   Kind
	Step   int
	Last   int   // of Slow: last slow step
	Phase  Phase // "": in the step itself
	Rank   int
	Factor float64 // of Slow: factor on the time of computing
}

// Hits reports whether this rank fails in this step. It is false if f is nil.
func (f *Fault) Hits(step, rank int) bool {
	return f != nil && f.Kind != Slow && f.Phase == "" && f.Step == step && f.Rank == rank
}

// FactorIn returns the factor on the time of computing in a step, for a Slow fault.
func (f *Fault) FactorIn(step int) float64 {
	if f.Step <= step && step <= f.Last {
		return f.Factor
	}
	return 1
}

// Strike ends or stops this process, depending on the fault's kind. abort ends the world, exit ends
// this process.
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
// move, after the given steps. It returns nil if no fault is to happen there. In a phase of rank 0,
// rank 0 kills or stops the fault's rank, and then stays in that phase. So the files are those of a
// run that lost the rank at that moment. pid returns the process of a rank; 0 if it is on another
// host, where Killer cannot act.
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

// signal sends a signal and does not return if that succeeds. The signal ends this process, or it
// ends another process and with that the run.
func signal(pid int, s unix.Signal) {
	if unix.Kill(pid, s) == nil {
		select {}
	}
}

// Phase is a moment in the writing of a checkpoint, in a move of layers, or in the release of ranks
// after a move.
type Phase string

// Phases of a checkpoint, in order. Each rank has the first three; only rank 0 has the others.
const (
	Open     Phase = "open"     // a file is created
	Write    Phase = "write"    // the last bytes of a file are not yet written
	Sync     Phase = "sync"     // a file is written, but not yet on disk
	Manifest Phase = "manifest" // the manifest is on disk
	Rename   Phase = "rename"   // before the checkpoint gets its name
	Renamed  Phase = "renamed"  // after the checkpoint got its name
	Latest   Phase = "latest"   // before LATEST names the checkpoint
	Prune    Phase = "prune"    // before older checkpoints are removed
)

// Phases of a move on each rank, in order.
const (
	Announce Phase = "announce" // before leaving layers are announced
	Send     Phase = "send"     // memory is allocated, and nothing is sent yet
	Received Phase = "received" // state for the next step has arrived, and is not yet in use
	Settle   Phase = "settle"   // before the memory of moved layers is freed
)

// Phases after a move to fewer ranks, in order. Only rank 0 has the last.
const (
	Resized  Phase = "resized"  // the remaining ranks have a world of their own
	Parked   Phase = "parked"   // a rank without layers waits for rank 0's order
	Goodbye  Phase = "goodbye"  // the rank is ordered to leave, and has not answered
	Scontrol Phase = "scontrol" // all ordered ranks have answered, and their nodes are not yet released
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

// OfCheckpoint reports whether the phase belongs to a checkpoint.
func (p Phase) OfCheckpoint() bool { return slices.Contains(ofCheckpoint, p) }

// OfRank0 reports whether only rank 0 has the phase.
func (p Phase) OfRank0() bool {
	return p == Scontrol || slices.Index(ofCheckpoint, p) >= slices.Index(ofCheckpoint, Manifest)
}
