package search

import (
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// Bytes returns, by stage, the bytes that a rank needs at some cuts. peaks are those of the schedule
// (schedule.Schedule.Peaks), by virtual stage.
func (p *Planner) Bytes(t cost.Table, cuts partition.Partition, peaks []schedule.Peak) []int64 {
	bytes := make([]int64, p.Map.Stages)
	for stage, m := range p.Memory(t, cuts, peaks) {
		bytes[stage] = m.Total()
	}
	return bytes
}

// Memory returns Bytes by purpose.
func (p *Planner) Memory(t cost.Table, cuts partition.Partition, peaks []schedule.Peak) []cost.Memory {
	chosen := p.choose(t, cuts, func() []schedule.Peak { return peaks })
	return p.memory(p.effective(t, chosen), cuts, peaks)
}

// memory is Memory of layers as the table has them.
func (p *Planner) memory(t cost.Table, cuts partition.Partition, peaks []schedule.Peak) []cost.Memory {
	stages := make([]cost.Memory, p.Map.Stages)
	for v, peak := range peaks {
		sum := p.besideLayers(v, peak)
		lo, hi := cuts.Range(v)
		for _, l := range t.Layers[lo:hi] {
			sum = sum.Plus(l.Bytes.Memory(peak.InFlight, peak.Between, peak.Recomputed))
		}
		stage := p.Map.Stage(v)
		stages[stage] = stages[stage].Plus(sum)
	}
	for stage := range stages {
		stages[stage].Sums += p.gradientSumBytes(t, cuts, peaks, stage)
	}
	return stages
}

// Sums returns the order and rounding of the sums of gradients over replicas, from the settings.
func (p *Planner) Sums() schedule.Sums { return schedule.SumsOf(p.Config) }

// sumsGradients reports whether stages need memory to sum gradients over replicas.
func (p *Planner) sumsGradients() bool { return p.Mesh.Replicas > 1 && p.fixed != nil }

// gradientSumBytes returns the bytes that a stage needs to sum gradients over replicas.
func (p *Planner) gradientSumBytes(t cost.Table, cuts partition.Partition, peaks []schedule.Peak, stage int) int64 {
	if !p.sumsGradients() {
		return 0
	}
	var summed []int64
	for before := range p.Map.Chunks {
		for chunk := range p.Map.Chunks {
			v := p.Map.Place(stage, chunk)
			if peaks[v].Before != before {
				continue
			}
			lo, hi := cuts.Range(v)
			for l := hi - 1; l >= lo; l-- {
				summed = append(summed, t.Layers[l].Summed())
			}
		}
	}
	return p.Sums().Bytes(summed, p.Mesh.Replicas)
}

// sumBytesOfLayers returns gradientSumBytes of a stage that holds layers [b, e) in one chunk, as
// a function. It returns nil if stages need no such memory.
func (p *Planner) sumBytesOfLayers(t cost.Table) func(b, e int) int64 {
	if !p.sumsGradients() {
		return nil
	}
	var backwards []int64
	for _, l := range slices.Backward(t.Layers) {
		backwards = append(backwards, l.Summed())
	}
	n := len(t.Layers)
	return func(b, e int) int64 { return p.Sums().Bytes(backwards[n-e:n-b], p.Mesh.Replicas) }
}

// besideLayers returns the memory of a virtual stage that does not belong to its layers, without
// that for gradient sums over replicas.
func (p *Planner) besideLayers(virtual int, peak schedule.Peak) cost.Memory {
	if p.fixed == nil {
		return cost.Memory{}
	}
	return p.fixed(p.Map, virtual, peak)
}

// missingBytes returns the sum over the stages of the bytes above the limit.
func (p *Planner) missingBytes(t cost.Table, cuts partition.Partition) int64 {
	if p.limit == 0 {
		return 0
	}
	over := int64(0)
	for _, b := range p.Bytes(t, cuts, p.peaks) {
		over += max(0, b-p.limit)
	}
	return over
}

// caps returns how many microbatches may be in flight on every stage, if the schedule
// follows from costs, else nil. Memory and settings bound them; one is always allowed. With
// several chunks on a stage only the settings count: the memory then depends on the order
// of the chunks, and Fits checks it.
func (p *Planner) caps(t cost.Table, cuts partition.Partition) []int {
	if !p.Adapts() {
		return nil
	}
	caps := p.capsOf(t, cuts)
	if p.plans() && p.given == nil { // the choice of what computes twice follows from the schedule
		for s, most := range p.capsOf(p.effective(t, slices.Repeat([]bool{true}, len(t.Layers))), cuts) {
			caps[s] = max(caps[s], most)
		}
	}
	return caps
}

// capsOf is caps of layers as the table has them.
func (p *Planner) capsOf(t cost.Table, cuts partition.Partition) []int {
	caps := make([]int, p.Map.Stages)
	for s := range caps {
		caps[s] = p.most
		if p.limit == 0 || p.Map.Chunks > 1 {
			continue
		}
		lo, hi := cuts.Range(s)
		static, each := p.gradientSumBytes(t, cuts, p.peaks, s), int64(0)
		for _, l := range t.Layers[lo:hi] {
			static += l.Bytes.Static()
			each += l.Bytes.Activations + l.Bytes.Held + l.Bytes.Recomputed
		}
		for caps[s] > 1 && static+int64(caps[s])*each+p.besideLayers(s, schedule.Peak{InFlight: caps[s], Between: caps[s], Recomputed: caps[s], Outgoing: p.peaks[s].Outgoing}).Total() > p.limit {
			caps[s]--
		}
	}
	return caps
}

// CutsFit reports whether every stage keeps to the memory limit at some cuts, in the base schedule.
// Without a limit (balance.memory_limit_bytes = 0) it is always true.
func (p *Planner) CutsFit(t cost.Table, cuts partition.Partition) bool {
	return p.missingBytes(t, cuts) == 0
}

// Fits reports whether a layout keeps to the memory limit. If Adapts it also checks that no virtual
// stage has more microbatches in flight than schedule.in_flight allows.
func (p *Planner) Fits(t cost.Table, l layout.Layout) bool {
	p = p.selectMap(l.Map()).keepChoice(l)
	peaks := l.Schedule.Peaks()
	for _, peak := range peaks {
		if p.Adapts() && peak.InFlight > p.most {
			return false
		}
	}
	return p.limit == 0 || slices.Max(p.Bytes(t, l.Cuts, peaks)) <= p.limit
}

// OptimizerCanFollow reports whether a move from layout present to next may be done in two parts, by the
// rule of layout.Layout.OptimizerCanFollow. Every stage also needs memory for the layers that leave it
// besides those of the next layout: senders keep layers until all is sent.
func (p *Planner) OptimizerCanFollow(t cost.Table, present, next layout.Layout) bool {
	if !present.OptimizerCanFollow(next, p.Config) {
		return false
	}
	p, err := p.Match(next)
	if err != nil {
		return false
	}
	if p.limit == 0 {
		return true
	}
	bytes, before, after := p.Bytes(t, next.Cuts, next.Schedule.Peaks()), present.Owners(), next.Owners()
	for _, l := range before.Moved(after) {
		bytes[before[l]] += t.Layers[l].Bytes.Static()
	}
	return slices.Max(bytes) <= p.limit
}

// memoryError returns a *balance.MemoryError if stages lack memory at some cuts. The error
// names the stage that lacks most.
func (p *Planner) memoryError(t cost.Table, cuts partition.Partition) error {
	if p.missingBytes(t, cuts) == 0 {
		return nil
	}
	worst := balance.MemoryError{Layer: -1}
	for stage, bytes := range p.Bytes(t, cuts, p.peaks) {
		if lack := bytes - p.limit; lack > worst.Missing {
			worst.Stage, worst.Missing = stage, lack
		}
	}
	return &worst
}
