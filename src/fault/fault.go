// Package fault has a rank fail on purpose, to see what becomes of the run. What comes in
// is the text of DYNMO_FAULT, such as segv@12:3; what goes out is where the rank fails, and
// its end.
package fault

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that wants a fault.
const Variable = "DYNMO_FAULT"

// Kind is how a rank ends.
type Kind string

// Kinds of faults.
const (
	Kill  Kind = "kill"  // SIGKILL
	Segv  Kind = "segv"  // SIGSEGV, of which Go lets no program recover where it is not Go's own code
	Exit  Kind = "exit"  // the process ends itself, with status 3, and tells no one
	Panic Kind = "panic" // of Go
	Abort Kind = "abort" // MPI_Abort, with status 1
)

var kinds = []Kind{Kill, Segv, Exit, Panic, Abort}

// Phase is a moment in the writing of a checkpoint.
type Phase string

// Phases in order. The first three are of each rank's files, the others of rank 0.
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

// Phases returns all phases, in order.
func Phases() []Phase { return []Phase{Open, Write, Sync, Manifest, Rename, Renamed, Latest, Prune} }

// OfRank0 reports whether only rank 0 comes through the phase.
func (p Phase) OfRank0() bool { return slices.Index(Phases(), p) >= slices.Index(Phases(), Manifest) }

// Fault is a rank's failure in a step, or in a phase of writing the checkpoint after so
// many steps.
type Fault struct {
	Kind  Kind
	Step  int
	Phase Phase // "" in the step itself
	Rank  int
}

// Parse returns the fault of a text, KIND@STEP:RANK or kill@STEP.PHASE:RANK, in a run of so
// many ranks; nil for "".
func Parse(text string, ranks int) (*Fault, error) {
	if text == "" {
		return nil, nil
	}
	kind, rest, _ := strings.Cut(text, "@")
	place, rank, _ := strings.Cut(rest, ":")
	step, phase, phased := strings.Cut(place, ".")
	f := &Fault{Kind: Kind(kind), Phase: Phase(phase)}
	var wrong [2]error
	f.Step, wrong[0] = strconv.Atoi(step)
	f.Rank, wrong[1] = strconv.Atoi(rank)
	switch {
	case wrong != [2]error{} || f.Step < 0 || f.Rank < 0:
		return nil, fmt.Errorf("%s=%s: want KIND@STEP:RANK or kill@STEP.PHASE:RANK", Variable, text)
	case !slices.Contains(kinds, f.Kind):
		return nil, fmt.Errorf("%s=%s: kind %q, want one of %v", Variable, text, kind, kinds)
	case phased && !slices.Contains(Phases(), f.Phase):
		return nil, fmt.Errorf("%s=%s: phase %q, want one of %v", Variable, text, phase, Phases())
	case f.Rank >= ranks:
		return nil, fmt.Errorf("%s=%s: rank %d, the run has %d", Variable, text, f.Rank, ranks)
	case phased && f.Kind != Kill:
		return nil, fmt.Errorf("%s=%s: in a phase of a checkpoint want kill", Variable, text)
	}
	return f, nil
}

// In reports whether the fault is this rank's, in this step. No fault is in none.
func (f *Fault) In(step, rank int) bool {
	return f != nil && f.Phase == "" && f.Step == step && f.Rank == rank
}

// Strike ends this process in the way of the fault's kind. abort ends the world, and exit
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
	default:
		signal(os.Getpid(), unix.SIGKILL)
	}
}

// Killer returns what a rank is to call in every phase of writing the checkpoint after so
// many steps; nil where no fault is wanted there. In the phases of rank 0 it is rank 0 that
// kills the fault's rank, and stays in that phase: what is on disk is what a run leaves
// whose rank is lost just then. pid returns the process of a rank, 0 if it is on another
// host, where nothing is killed.
func (f *Fault) Killer(step, rank int, pid func(rank int) int) func(Phase) {
	if f == nil || f.Phase == "" || f.Step != step || f.Rank != rank && !(rank == 0 && f.Phase.OfRank0()) {
		return nil
	}
	return func(p Phase) {
		if victim := pid(f.Rank); p == f.Phase && victim > 0 {
			signal(victim, unix.SIGKILL)
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
