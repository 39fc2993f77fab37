package sim

import (
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

// Replicas simulates a step of all replicas of s.Mesh, and the sum of gradients over them.
// Frozen layers have no W and no sum. layers is the chain, which cuts lays over the virtual
// stages. Layers fall into buckets as in the pipeline (see
// schedule.Buckets). A bucket with G bytes of gradients is summed in rounds of messages
// between its D ranks. Rounds carry slices, the sums of groups where there are groups, and
// the whole sums. A round's messages leave a rank one behind the other, and arrive
//
//	share·G/bandwidth + latency
//
// later on the slowest link to a receiver. Links that were busy with an earlier round delay
// them further. share is the share that a rank sends (see schedule.Sums.Sent): (D-1)/D in
// both rounds of sums without groups and rounding. The first round of a bucket begins when
// the last W of its layers has ended on every replica. It also waits for the last W of all
// layers that exchange rows with other replicas. A later round begins when the bucket's round before
// has arrived and that of the bucket behind it has begun. Rounds and the remaining
// instructions run side by side, and do not slow each other down. Delays apply to the
// pipeline's messages only.
//
// The last W of a virtual stage goes through its layers from the last to the
// first; it divides by their seconds, those of I and W where the instruction is
// B, and falls to its end if they have none. The step ends with a barrier over
// all ranks: the norm of the gradient needs every one of them. Where shares are slices (see
// schedule.Sums) the last round carries updated weights, a round for each layer in the order
// of the chain. These rounds belong to the step before and begin where the step does. The
// first forward of a layer waits for the layer's weights (see arrivals).
//
// s.Replica is ignored.
func Replicas(s Step, cuts partition.Partition, layers []cost.Layer) ReplicasResult {
	all := ReplicasResult{Replicas: make([]Result, max(1, s.Mesh.Replicas))}
	e := newEngine(s)
	e.arrivals(cuts, layers)
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
	for stage := range s.Schedule.Map.Stages {
		all.Seconds = max(all.Seconds, s.summed(stage, cuts, layers, ready))
	}
	return all
}

// arrivals notes when the weights of each layer arrive that replicas have updated for each other,
// where shares are slices.
func (e *engine) arrivals(cuts partition.Partition, layers []cost.Layer) {
	s := e.s
	if !s.Sums.Sliced || s.Mesh.Replicas <= 1 {
		return
	}
	e.cuts, e.layers, e.arrives = cuts, layers, make([]float64, len(layers))
	last, free := s.Sums.Rounds(s.Mesh.Replicas), make([]float64, s.Schedule.Map.Stages)
	for v := range s.Schedule.Map.Virtual() {
		stage := s.Schedule.Map.Stage(v)
		lo, hi := cuts.Range(v)
		for l := lo; l < hi; l++ {
			latency, busy := s.Round(stage, last, layers[l].Summed())
			if layers[l].Summed() > 0 {
				free[stage] += busy
				e.arrives[l] = free[stage] + latency
			}
		}
	}
}

// firstForward returns when a virtual stage ends its first forward, which takes so long and
// begins at start. Each layer waits for its weights.
func (e *engine) firstForward(v int, start, seconds float64) float64 {
	lo, hi := e.cuts.Range(v)
	total := 0.0
	for _, l := range e.layers[lo:hi] {
		total += l.Forward
	}
	end, left := start+seconds, total
	for l := lo; l < hi; l++ {
		rest := seconds
		if total > 0 {
			rest *= left / total
		}
		end, left = max(end, e.arrives[l]+rest), left-e.layers[l].Forward
	}
	return end
}

// summed returns when the gradients of a stage have been summed over its replicas; ready is
// by layer.
func (s Step) summed(stage int, cuts partition.Partition, layers []cost.Layer, ready []float64) float64 {
	var bytes []int64
	var complete []float64 // when the gradients of the layers up to this one are
	talked, latest := 0.0, 0.0
	for _, chunk := range s.Schedule.Completed(stage) {
		lo, hi := cuts.Range(s.Schedule.Map.Place(stage, chunk))
		for l := hi - 1; l >= lo; l-- {
			if own := layers[l].Summed(); own > 0 {
				latest = max(latest, ready[l])
				bytes, complete = append(bytes, own), append(complete, latest)
			}
			if layers[l].Bytes.Own > 0 {
				talked = max(talked, ready[l])
			}
		}
	}
	ends := schedule.Buckets(bytes, schedule.BucketBytes(s.Mesh.Replicas))
	size := func(bucket int) (sum int64) {
		begin := 0
		if bucket > 0 {
			begin = ends[bucket-1]
		}
		for _, own := range bytes[begin:ends[bucket]] {
			sum += own
		}
		return sum
	}
	// Rounds begin in one order: a later one follows the round before it of lookahead - 1 buckets behind.
	free, arrived := 0.0, make([]float64, len(ends))
	begun, last, apart := 0.0, s.Sums.Rounds(s.Mesh.Replicas), schedule.Lookahead-1
	if s.Sums.Sliced {
		last-- // weights follows
	}
	for i := range len(ends) + last*apart {
		for round := range last + 1 {
			bucket := i - round*apart
			if bucket < 0 || bucket >= len(ends) {
				continue
			}
			if round == 0 {
				begun = max(begun, talked, complete[ends[bucket]-1])
			} else {
				begun = max(begun, arrived[bucket])
			}
			departs := max(begun, free)
			latency, busy := s.Round(stage, round, size(bucket))
			free, arrived[bucket] = departs+busy, departs+busy+latency
		}
	}
	return slices.Max(append(arrived, 0))
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

// Round returns two times of a round of messages of a bucket between the replicas of a stage: the
// seconds for which it travels, and the seconds for which it keeps their links busy. Rounds count
// from 0.
func (s Step) Round(stage, round int, bytes int64) (latency, busy float64) {
	d, slowest := s.Mesh.Replicas, 0.0
	for replica := range d {
		next := s.Sums.Next(round, replica, d)
		if next == replica { // alone in its group
			continue
		}
		l, t := s.Network.Link(s.rank(stage, replica), s.rank(stage, next)), 0.0
		if l.Bandwidth != 0 {
			t = s.Sums.Sent(round, replica, d) * float64(bytes) / l.Bandwidth
		}
		if l.Latency+t > slowest {
			slowest, latency, busy = l.Latency+t, l.Latency, t
		}
	}
	return latency, busy
}
