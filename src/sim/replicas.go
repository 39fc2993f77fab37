package sim

import (
	"cmp"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// ReplicasResult is how a step of all replicas went. Seconds count from its start.
type ReplicasResult struct {
	Replicas []Result // by replica; those that are alike share theirs
	Pipeline float64  // when the last replica's last instruction ended
	Seconds  float64  // when the last gradient was summed over the replicas
}

// Exposed returns the seconds of the gradient sum that no instruction hides.
func (r ReplicasResult) Exposed() float64 { return r.Seconds - r.Pipeline }

// Replicas simulates a step of all replicas of s.Mesh, and the sum of gradients
// over them, but for those of frozen layers, which have no W. layers is the chain, which
// cuts lays over the virtual stages. A layer with G bytes of gradients is summed in two
// rounds of messages between all of its D ranks, slices and then their sums, which leave
// a rank one behind the other,
//
//	2·(D-1)/D·G/bandwidth + 2·latency
//
// on the slowest link between two ranks that are neighbours. It begins when the layer's
// last W has ended on every replica, one at a time on each stage, beside the instructions
// that are left. Neither slows the other down, and delays are for the pipeline's messages
// only.
//
// The last W of a virtual stage goes through its layers from the last to the
// first; it divides by their seconds, those of I and W where the instruction is
// B, and falls to its end if they have none. The step ends with a barrier over
// all ranks: the norm of the gradient needs every one of them.
//
// s.Replica is not looked at.
func Replicas(s Step, cuts partition.Partition, layers []cost.Layer) ReplicasResult {
	all := ReplicasResult{Replicas: make([]Result, max(1, s.Mesh.Replicas))}
	e := newEngine(s)
	for d := range all.Replicas {
		twin := slices.IndexFunc(all.Replicas[:d], func(r Result) bool { return s.alike(r.replica, d) })
		if twin >= 0 {
			all.Replicas[d] = all.Replicas[twin]
		} else {
			all.Replicas[d] = e.run(d)
		}
		all.Pipeline = max(all.Pipeline, all.Replicas[d].Finish)
	}
	all.Seconds = all.Pipeline
	if len(all.Replicas) == 1 {
		return all
	}
	ready := make([]float64, len(layers))
	for _, r := range all.Replicas {
		for v, last := range r.weights {
			lo, hi := cuts.Range(v)
			last.ready(ready[lo:hi], layers[lo:hi])
		}
	}
	owners := s.Schedule.Map.Owners(cuts)
	for stage := range s.Schedule.Map.Stages {
		mine := owners.Layers(stage)
		slices.SortFunc(mine, func(a, b int) int { return cmp.Compare(ready[a], ready[b]) })
		end := 0.0
		for _, l := range mine {
			if bytes := layers[l].Summed(); bytes > 0 {
				end = max(end, ready[l]) + s.sum(stage, bytes)
			}
		}
		all.Seconds = max(all.Seconds, end)
	}
	return all
}

// ready raises complete[l] to when the gradient of the l-th of layers is complete.
func (w work) ready(complete []float64, layers []cost.Layer) {
	seconds := func(l cost.Layer) float64 {
		if w.op == schedule.B {
			return l.BackwardInput + l.BackwardWeight
		}
		return l.BackwardWeight
	}
	left := 0.0 // seconds of the layers before
	for _, l := range layers {
		left += seconds(l)
	}
	total := left
	for i := len(layers) - 1; i >= 0; i-- {
		end := w.End
		if left -= seconds(layers[i]); i > 0 && total > 0 {
			end -= max(0, left) / total * w.Seconds()
		}
		complete[i] = max(complete[i], end)
	}
}

// sum returns the seconds of a sum over the replicas of a stage.
func (s Step) sum(stage int, bytes int64) float64 {
	d := s.Mesh.Replicas
	slowest := 0.0
	for replica := range d {
		l := s.Network.Link(s.rank(stage, replica), s.rank(stage, (replica+1)%d))
		t := 2 * l.Latency
		if l.Bandwidth != 0 {
			t += 2 * float64(d-1) / float64(d) * float64(bytes) / l.Bandwidth
		}
		slowest = max(slowest, t)
	}
	return slowest
}
