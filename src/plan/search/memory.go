package search

import (
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// Bytes returns, by stage, the bytes that a rank needs in a layout if the layers recompute that the
// costs choose, whatever l.Twice has.
func (s *Step) Bytes(l layout.Layout) []int64 {
	l.Twice = nil
	return totals(s.memory(l, l.Schedule.Peaks()))
}

// totals returns the bytes of all purposes.
func totals(stages []cost.Memory) []int64 {
	bytes := make([]int64, len(stages))
	for stage, m := range stages {
		bytes[stage] = m.Total()
	}
	return bytes
}

// memory returns, by stage, the bytes that a rank needs in a layout by purpose. peaks are those of the
// schedule (schedule.Schedule.Peaks), by virtual stage.
func (s *Step) memory(l layout.Layout, peaks []schedule.Peak) []cost.Memory {
	chosen, _ := s.chosen(l, func() []schedule.Peak { return peaks })
	return s.memoryOf(s.effective(s.Costs, chosen), l.Cuts, peaks)
}

// memoryOf is memory of layers as the table has them.
func (s *Step) memoryOf(t cost.Table, cuts partition.Partition, peaks []schedule.Peak) []cost.Memory {
	m := s.form(cuts.Stages()).Map
	stages := make([]cost.Memory, m.Stages)
	for v, peak := range peaks {
		sum := s.besideLayers(m, v, peak)
		lo, hi := cuts.Range(v)
		for _, l := range t.Layers[lo:hi] {
			sum = sum.Plus(l.Bytes.Memory(peak.InFlight, peak.Between, peak.Recomputed))
		}
		stages[m.Stage(v)] = stages[m.Stage(v)].Plus(sum)
	}
	for stage := range stages {
		stages[stage].Sums += s.gradientSumBytes(cuts, peaks, stage)
	}
	return stages
}

// sumsGradients reports whether stages need memory to sum gradients over replicas.
func (p *Problem) sumsGradients() bool { return p.Mesh.Replicas > 1 && p.fixed != nil }

// gradientSumBytes returns the bytes that a stage needs to sum gradients over replicas.
func (s *Step) gradientSumBytes(cuts partition.Partition, peaks []schedule.Peak, stage int) int64 {
	if !s.sumsGradients() {
		return 0
	}
	m := s.form(cuts.Stages()).Map
	var summed []int64
	for before := range m.Chunks {
		for chunk := range m.Chunks {
			v := m.Place(stage, chunk)
			if peaks[v].Before != before {
				continue
			}
			lo, hi := cuts.Range(v)
			for l := hi - 1; l >= lo; l-- {
				summed = append(summed, s.Costs.Layers[l].Summed())
			}
		}
	}
	return s.sums.Bytes(summed, s.Mesh.Replicas)
}

// besideLayers returns the memory of a virtual stage that does not belong to its layers, without
// that for gradient sums over replicas.
func (p *Problem) besideLayers(m partition.Map, virtual int, peak schedule.Peak) cost.Memory {
	if p.fixed == nil {
		return cost.Memory{}
	}
	return p.fixed(m, virtual, peak)
}

// bytesInBase returns Bytes of cuts in the base schedule.
func (s *Step) bytesInBase(cuts partition.Partition) []int64 {
	return totals(s.memory(s.baseLayout(cuts), s.form(cuts.Stages()).peaks))
}

// missingBytes returns the sum over the stages of the bytes above the limit.
func (s *Step) missingBytes(cuts partition.Partition) int64 {
	if s.limit == 0 {
		return 0
	}
	over := int64(0)
	for _, b := range s.bytesInBase(cuts) {
		over += max(0, b-s.limit)
	}
	return over
}

// caps returns how many microbatches may be in flight on every stage at the cuts of l, if the schedule
// follows from costs, else nil. t are the costs of the layers as they recompute. Memory and settings
// bound the microbatches; one is always allowed. With several chunks on a stage only the settings
// count: the memory then depends on the order of the chunks, and Fits checks it.
func (s *Step) caps(t cost.Table, l layout.Layout) []int {
	if !s.Adapts() {
		return nil
	}
	caps := s.capsOf(t, l.Cuts)
	if s.twice != nil && l.Twice == nil { // the choice of what computes twice follows from the schedule
		for stage, most := range s.capsOf(s.recomputingAll(t), l.Cuts) {
			caps[stage] = max(caps[stage], most)
		}
	}
	return caps
}

// capsOf is caps of layers as the table has them.
func (s *Step) capsOf(t cost.Table, cuts partition.Partition) []int {
	f := s.form(cuts.Stages())
	caps := slices.Repeat([]int{f.most}, f.Stages)
	if s.limit == 0 || f.Chunks > 1 {
		return caps
	}
	for stage := range caps {
		lo, hi := cuts.Range(stage)
		static, each := s.gradientSumBytes(cuts, f.peaks, stage), int64(0)
		for _, l := range t.Layers[lo:hi] {
			static += l.Bytes.Static()
			each += l.Bytes.Activations + l.Bytes.Held + l.Bytes.Recomputed
		}
		fits := func(n int) bool {
			peak := schedule.Peak{InFlight: n, Between: n, Recomputed: n, Outgoing: f.peaks[stage].Outgoing}
			return static+int64(n)*each+s.besideLayers(f.Map, stage, peak).Total() <= s.limit
		}
		for caps[stage] > 1 && !fits(caps[stage]) {
			caps[stage]--
		}
	}
	return caps
}

// CutsFit reports whether every stage keeps to the memory limit at some cuts, in the base schedule.
// Without a limit (balance.memory_limit_bytes = 0) it is always true.
func (s *Step) CutsFit(cuts partition.Partition) bool { return s.missingBytes(cuts) == 0 }

// Fits reports whether a layout keeps to the memory limit. If Adapts it also checks that no virtual
// stage has more microbatches in flight than schedule.in_flight allows.
func (s *Step) Fits(l layout.Layout) bool {
	peaks, most := l.Schedule.Peaks(), s.form(l.Map().Virtual()).most
	if s.Adapts() && slices.ContainsFunc(peaks, func(p schedule.Peak) bool { return p.InFlight > most }) {
		return false
	}
	return s.limit == 0 || slices.Max(totals(s.memory(l, peaks))) <= s.limit
}

// OptimizerCanFollow reports whether a move from the present layout to next may be done in two parts, by
// the rule of layout.Layout.OptimizerCanFollow. Every stage also needs memory for the layers that leave
// it besides those of the next layout: senders keep layers until all is sent.
func (s *Step) OptimizerCanFollow(next layout.Layout) bool {
	if !s.Present.OptimizerCanFollow(next, s.Config) {
		return false
	}
	if s.limit == 0 {
		return true
	}
	bytes, before, after := s.Bytes(next), s.Present.Owners(), next.Owners()
	for _, l := range before.Moved(after) {
		bytes[before[l]] += s.Costs.Layers[l].Bytes.Static()
	}
	return slices.Max(bytes) <= s.limit
}

// memoryError returns a *balance.MemoryError if stages lack memory at some cuts. The error
// names the stage that lacks most.
func (s *Step) memoryError(cuts partition.Partition) error {
	worst := balance.MemoryError{Layer: -1}
	for stage, bytes := range s.bytesInBase(cuts) {
		if lack := bytes - s.limit; s.limit > 0 && lack > worst.Missing {
			worst.Stage, worst.Missing = stage, lack
		}
	}
	if worst.Missing == 0 {
		return nil
	}
	return &worst
}
