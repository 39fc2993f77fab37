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
		sum := s.beside(m, v, peak)
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

// gradientSumBytes returns the bytes that a stage needs to sum gradients over replicas.
func (s *Step) gradientSumBytes(cuts partition.Partition, peaks []schedule.Peak, stage int) int64 {
	if !s.sumsGradients {
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

// bytesInBase returns Bytes of cuts in the base schedule.
func (s *Step) bytesInBase(cuts partition.Partition) []int64 {
	return totals(s.memory(s.baseLayout(cuts), s.form(cuts.Stages()).peaks))
}

// missing returns the sum over the stages of the bytes above the limit in the base schedule of some cuts,
// and an error unless it is 0: a *balance.MemoryError that names the stage that lacks most.
func (s *Step) missing(cuts partition.Partition) (over int64, err error) {
	if s.limit == 0 {
		return 0, nil
	}
	worst := balance.MemoryError{Layer: -1}
	for stage, bytes := range s.bytesInBase(cuts) {
		lack := max(0, bytes-s.limit)
		if over += lack; lack > worst.Missing {
			worst.Stage, worst.Missing = stage, lack
		}
	}
	if over == 0 {
		return 0, nil
	}
	return over, &worst
}

// caps returns how many microbatches may be in flight on every stage at the cuts of l, if the schedule
// follows from costs, else nil. t are the costs of the layers as they recompute. Memory and settings
// bound the microbatches; one is always allowed. With several chunks on a stage only the settings
// count: the memory then depends on the order of the chunks, and Fits checks it.
func (s *Step) caps(t cost.Table, l layout.Layout) []int {
	if !s.Adapts() {
		return nil
	}
	f := s.form(l.Cuts.Stages())
	if s.limit == 0 || f.Chunks > 1 {
		return slices.Repeat([]int{f.most}, f.Stages)
	}
	caps := make([]int, f.Stages)
	choices := []cost.Table{t}
	if s.twice != nil && l.Twice == nil { // the choice of what computes twice follows from the schedule
		choices = append(choices, s.effective(t, slices.Repeat([]bool{true}, len(t.Layers))))
	}
	for stage := range caps {
		for _, t := range choices {
			lo, hi := l.Cuts.Range(stage)
			static, each := s.gradientSumBytes(l.Cuts, f.peaks, stage), int64(0)
			for _, layer := range t.Layers[lo:hi] {
				static += layer.Bytes.Static()
				each += layer.Bytes.Activations + layer.Bytes.Held + layer.Bytes.Recomputed
			}
			n := f.most
			for ; n > 1; n-- {
				peak := schedule.Peak{InFlight: n, Between: n, Recomputed: n, Outgoing: f.peaks[stage].Outgoing}
				if static+int64(n)*each+s.beside(f.Map, stage, peak).Total() <= s.limit {
					break
				}
			}
			caps[stage] = max(caps[stage], n)
		}
	}
	return caps
}

// CutsFit reports whether every stage keeps to the memory limit at some cuts, in the base schedule.
// Without a limit (balance.memory_limit_bytes = 0) it is always true.
func (s *Step) CutsFit(cuts partition.Partition) bool {
	_, err := s.missing(cuts)
	return err == nil
}

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
