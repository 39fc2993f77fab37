package sim

import (
	"slices"

	"dynmo/src/layout"
	"dynmo/src/schedule"
)

// Rounds are the rounds of messages in which the replicas of every stage add up gradients.
type Rounds struct {
	sums  schedule.Sums
	sends [][][]send // by stage and round: each kind of message once
}

// send is a message of a replica in a round: its link, and its share of a bucket's bytes.
type send struct {
	Link
	share float64
}

// NewRounds returns the rounds on a network. ranks is that of Step.
func NewRounds(n Network, m layout.Mesh, ranks []int, sums schedule.Sums) *Rounds {
	r, s := Rounds{sums, make([][][]send, m.Stages)}, Step{Mesh: m, Ranks: ranks}
	for stage := range r.sends {
		for round := range sums.Rounds(m.Replicas) + 1 {
			var kinds []send
			for replica := range m.Replicas {
				next := sums.Next(round, replica, m.Replicas)
				if next == replica { // alone in its group
					continue
				}
				x := send{n.Link(s.rank(stage, replica), s.rank(stage, next)), sums.Sent(round, replica, m.Replicas)}
				if !slices.Contains(kinds, x) {
					kinds = append(kinds, x)
				}
			}
			r.sends[stage] = append(r.sends[stage], kinds)
		}
	}
	return &r
}

// Last returns the number of the last round. Rounds count from 0.
func (r *Rounds) Last(stage int) int { return len(r.sends[stage]) - 1 }

// Round returns two times of a round of a bucket's messages between the replicas of a stage.
// latency is how long a message travels; busy is how long it keeps the links busy.
func (r *Rounds) Round(stage, round int, bytes int64) (latency, busy float64) {
	slowest := 0.0
	for _, x := range r.sends[stage][round] {
		t := 0.0
		if x.Bandwidth != 0 {
			t = x.share * float64(bytes) / x.Bandwidth
		}
		if x.Latency+t > slowest {
			slowest, latency, busy = x.Latency+t, x.Latency, t
		}
	}
	return latency, busy
}
