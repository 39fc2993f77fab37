package fault

import "slices"

// Phase is a moment in the writing of a checkpoint, in a move of layers, or in what follows
// a move that leaves ranks without a place.
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
