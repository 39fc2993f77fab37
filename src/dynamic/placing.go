package dynamic

import (
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/piece"
)

// Placing decides which replicas of a stage hold which pieces of a layer, and copies of these. A
// value remembers the steps so far.
type Placing interface {
	// Observe takes what layers counted in a step, ascending by layer and name.
	Observe(counts []cost.CountSum)
	// Propose returns other pieces for layers in which the fullest replica is expected to have
	// less work than with the present ones, ascending by layer.
	Propose(q Question) []Proposal
	// Take returns the pieces of all layers, with those of some proposals.
	Take(present piece.Assignment, list []Proposal) piece.Assignment
	// Load returns the work of the fullest replica of a layer in a microbatch, over its even
	// share, where the layer counted values.
	Load(pieces piece.Assignment, layer int, values []int64) float64
	// Copied returns by layer the bytes that its busiest replica sends or receives in a step
	// because there are copies: weights to them, and their gradients back.
	Copied(pieces piece.Assignment) map[int]int64
}

// Held is which replicas held the pieces of a layer in a step, and what that was worth.
type Held struct {
	Holders []int     // by piece: the replicas that held it
	Shares  []float64 // by piece: of the work of the layer
	Load    float64   // times its even share that the fullest replica had to do
	Even    float64   // the same as the kind's own rule would have had it
}

// Question is what a proposal depends on besides the steps so far.
type Question struct {
	Present piece.Assignment             // of all layers
	Owners  bool                         // whether owners may move, or copies alone
	Node    func(layer, replica int) int // on which node a replica of a layer is; nil: all are on one
}

// Proposal is other pieces for a layer.
type Proposal struct {
	Layer  int
	Pieces piece.Map
	// Now and Then are the expected work of the fullest replica in the next step, over its even
	// share: with the present pieces, and with these. Bound is a lower bound for any pieces.
	Now, Then, Bound float64
	Moved            int64 // bytes of the owners that move, weights and moments
}

// NamedPlacing is one way to decide where pieces are.
type NamedPlacing struct {
	Name, About string
	New         func(config.Config) Placing
}

// Contest is what a study of placings compares.
type Contest struct {
	About  string // what the cases are and what their figures mean
	Rivals []NamedPlacing
	Cases  []ContestCase
}

// ContestCase is a made-up run of a contest.
type ContestCase struct {
	Name     string
	Set      []string // table.key=value
	Replicas int      // of a stage, over which the pieces of its layers are spread
	Share    float64  // of a layer's seconds that follows the work of the fullest replica
	Most     float64  // what the last rival's step should take at most of a step of even work; 0: not said
}

// Contests returns the contests of all kinds, by their names.
func Contests() map[string]Contest {
	all := make(map[string]Contest)
	for _, r := range registrations {
		if r.Contest.Rivals != nil {
			all[r.Settings.Name] = r.Contest
		}
	}
	return all
}

// NewPlacing returns what decides where pieces of layers are in runs of the settings; nil:
// pieces do not move.
func NewPlacing(c config.Config) Placing {
	for _, r := range Active(c) {
		if r.Placing == nil {
			continue
		}
		if p := r.Placing(c); p != nil {
			return p
		}
	}
	return nil
}
