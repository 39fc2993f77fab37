package profile

import "slices"

const (
	// patience is the number of consecutive slower steps after which a rank counts as slow.
	patience = 24
	// A step does not count if a rank takes at least leastDisturbed times its best pace. Where
	// ranks vary much from step to step the factor is 1 plus commonDisturbed deviations.
	leastDisturbed, commonDisturbed = 1.15, 6
)

// disturbed returns the factor over its best pace from which on a step of a rank does not count.
func (e *estimator) disturbed() float64 {
	return max(leastDisturbed, 1+commonDisturbed*e.Spread[1])
}

// pacing finds the steps in which ranks were slower than at their best, and the lasting pace of
// ranks. If all layers of a rank take longer at once and the model has not changed, the cause is
// the rank and not the layers.
func (e *estimator) pacing() {
	stages, disturbed := len(e.Pace), e.disturbed()
	if e.Base == nil {
		e.begin()
	}
	e.Passes = slices.Repeat([]float64{1}, stages)
	paces := make([][]float64, len(e.Steps)) // by step and stage; 0: none of the stage's layers ran there
	best := make([]float64, stages)
	for i := range e.Steps {
		paces[i] = e.paces(e.Steps[i])
		for stage, x := range paces[i] {
			if x > 0 && len(e.Steps)-i <= patience && (best[stage] == 0 || x < best[stage]) {
				best[stage] = x
			}
		}
	}
	e.Last = paces[len(paces)-1]
	e.took = slices.Clone(e.Pace)
	for stage, x := range e.Last {
		if x > 0 {
			e.took[stage] *= x
		}
	}
	for stage := range stages {
		sum, n := 0.0, 0
		for i := range e.Steps {
			x := paces[i][stage]
			usable := x <= disturbed*best[stage] && disturbed*x >= best[stage]
			if e.Steps[i].Usable[stage] = usable; usable {
				sum += x
				n++
			}
		}
		if best[stage] > 0 {
			e.judge(stage, sum/float64(n), n)
		}
	}
}

// begin takes the newest step as the base costs of layers.
func (e *estimator) begin() {
	newest := e.Steps[len(e.Steps)-1]
	for l, s := range newest.Layers {
		e.Base = append(e.Base, s.scaled(1/e.Pace[newest.Owners[l]]))
	}
}

// doubt records which ranks are disturbed when the costs of layers change. The next measurements on
// such a rank may show the layers or the disturbance.
func (e *estimator) doubt() {
	for stage, x := range e.Last {
		if x > e.disturbed() {
			e.Doubts[stage] = max(e.Doubts[stage], 1-1/x)
		}
	}
}

// paces returns by stage the time of a step divided by the estimates of the layers that were
// measured there.
func (e *estimator) paces(s *observed) []float64 {
	took, base := make([]float64, len(e.Pace)), make([]float64, len(e.Pace))
	for l, stage := range e.Home {
		if s.Owners[l] == stage {
			seconds, should := e.matched(s, l, &e.Base[l])
			took[stage] += seconds
			base[stage] += should * e.Pace[stage]
		}
	}
	for stage := range took {
		if base[stage] > 0 {
			took[stage] /= base[stage]
		}
	}
	return took
}

// judge updates the pace of a stage after n counted steps whose mean time is `pace` times the
// estimate. A pace that has lasted is that of the rank. A rank that becomes faster than its best
// pace was slow in all earlier measurements.
func (e *estimator) judge(stage int, pace float64, n int) {
	disturbed := e.disturbed()
	faster := pace*disturbed < 1
	if faster || len(e.Steps) >= patience {
		e.Doubts[stage] = 0
	}
	if !faster && (pace < disturbed || n < patience*3/4) {
		if pace > disturbed {
			e.Passes[stage] = pace
		}
		return
	}
	e.Pace[stage] *= pace
	if best := e.Pace[stage]; best < disturbed {
		for l, home := range e.Home {
			if home == stage {
				e.Base[l] = e.Base[l].scaled(best)
			}
		}
		e.Pace[stage] = 1
		e.Speeds.Forget(stage)
	}
}

// prove updates Proven from slow, the slowness of ranks by moved layers. A new slowness may be a
// disturbance since the model changed. As long as that is possible, deviations of costs measured on
// the rank are raised to match.
func (e *estimator) prove(slow, deviations []float64) {
	for stage := range e.Proven {
		now := 1.0
		if slow != nil {
			now = slow[stage]
		}
		if len(e.Steps) >= patience || now < e.Proven[stage] {
			e.Proven[stage] = now
		}
		if now > e.disturbed()*e.Proven[stage] {
			deviations[stage] = max(deviations[stage], 1-e.Proven[stage]/now)
		}
	}
}

// steady reports whether the rank of a stage is as fast now as when the costs of its layers were
// measured.
func (e *estimator) steady(stage int) bool {
	return e.Last[stage] > 0 && e.Last[stage] <= e.disturbed() && e.disturbed()*e.Last[stage] >= 1
}
