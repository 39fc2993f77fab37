package sim

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// ReplicasResult is the simulated step of all replicas. Seconds count from its start.
type ReplicasResult struct {
	Replicas []Result // by replica; equal replicas share a Result
	Pipeline float64  // when the last replica's last instruction ended
	Seconds  float64  // when the last gradient was summed over the replicas
}

// Exposed returns the seconds by which the gradient sum ends after the last instruction.
func (r ReplicasResult) Exposed() float64 { return r.Seconds - r.Pipeline }

// Replicas simulates a step of all replicas of s.Mesh, and the sum of gradients over them. layers
// is the chain of layers, and cuts divides it over the virtual stages. Frozen layers have no W and
// no sum. Layers fall into buckets as in the pipeline (see schedule.Buckets). A bucket with G bytes
// of gradients is summed in rounds of messages between its D ranks. Rounds carry slices, then the
// sums of groups if there are groups, then the whole sums. A rank sends a round's messages one
// after the other. They arrive
//
//	share·G/bandwidth + latency
//
// later on the slowest link to a receiver. Links that are busy with an earlier round delay them
// further. share is the share that a rank sends (see schedule.Sums.Sent). Without groups and
// rounding it is (D-1)/D in both rounds. The first round of a bucket begins when the last W of its
// layers has ended on every replica. It also waits for the last W of all layers that exchange rows
// with other replicas. A later round begins when two others allow it: the bucket's round before has
// arrived, and the same round of the bucket behind has begun. Rounds and instructions run side by
// side, and do not slow each other down. Delays apply to the pipeline's messages only.
//
// The last W of a virtual stage goes through its layers from the last to the first. Its time is
// divided in proportion to the layers' seconds of W (of I and W if it is a B). If the layers have
// none, all gradients are complete at its end. The step ends with a barrier over all ranks, because
// the norm of the gradient needs all gradients. If shares are slices (see schedule.Sums), the last
// round carries updated weights, a round for each layer in the order of the chain. These rounds
// belong to the step before, and begin with this step. The first forward of a layer waits for the
// layer's weights (see arrivals).
//
// s.Replica is ignored.
func Replicas(s Step, cuts partition.Partition, layers []cost.Layer) ReplicasResult {
	if s.Mesh.Replicas > 1 && s.Rounds == nil {
		panic("sim: several replicas without Rounds")
	}
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
	for d, r := range all.Replicas {
		if r.replica != d { // the result of an earlier replica, which is alike
			continue
		}
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

// arrivals computes when the updated weights of each layer arrive from other replicas, if shares
// are slices.
func (e *engine) arrivals(cuts partition.Partition, layers []cost.Layer) {
	s := e.s
	if s.Mesh.Replicas <= 1 || !s.Rounds.sums.Sliced {
		return
	}
	e.cuts, e.layers, e.arrives = cuts, layers, make([]float64, len(layers))
	free := make([]float64, s.Schedule.Map.Stages)
	for v := range s.Schedule.Map.Virtual() {
		stage := s.Schedule.Map.Stage(v)
		lo, hi := cuts.Range(v)
		for l := lo; l < hi; l++ {
			latency, busy := s.Rounds.Round(stage, s.Rounds.Last(stage), layers[l].Summed())
			if layers[l].Summed() > 0 {
				free[stage] += busy
				e.arrives[l] = free[stage] + latency
			}
		}
	}
}

// firstForward returns when a virtual stage ends its first forward, which begins at start and takes
// seconds. Each layer waits for its weights.
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

// summed returns when the gradients of a stage have been summed over its replicas. ready has, by
// layer, when the layer's gradients are complete.
func (s *Step) summed(stage int, cuts partition.Partition, layers []cost.Layer, ready []float64) float64 {
	var bytes []int64
	var complete []float64 // when the gradients of all layers up to this one are complete
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
	// Rounds begin in one order: a later round of a bucket follows the round before of the bucket
	// Lookahead-1 behind.
	free, arrived := 0.0, make([]float64, len(ends))
	begun, last, apart := 0.0, s.Rounds.Last(stage), schedule.Lookahead-1
	if s.Rounds.sums.Sliced {
		last-- // the last round carries weights in the next step
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
			latency, busy := s.Rounds.Round(stage, round, size(bucket))
			free, arrived[bucket] = departs+busy, departs+busy+latency
		}
	}
	return slices.Max(append(arrived, 0))
}

// ready raises complete[l] to the time at which w completes the gradient of layers[l].
func (w work) ready(complete []float64, layers []cost.Layer) {
	seconds := func(l cost.Layer) float64 {
		if w.op == schedule.B {
			return l.BackwardInput + l.BackwardWeight
		}
		return l.BackwardWeight
	}
	left := 0.0 // seconds of earlier layers
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
