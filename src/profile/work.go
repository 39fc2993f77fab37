package profile

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/trace"
)

// A layer behind an exit, or a layer that takes only some tokens, works on fewer tokens than a full
// microbatch has. The number differs in every microbatch and step. A layer whose experts are spread
// over replicas takes as long as the fullest replica. That replica may have more tokens than a full
// microbatch. The seconds follow a straight line,
//
//	seconds(w) = seconds(1) · (φ + (1-φ)·w)    for w > 0; nothing at w = 0
//
// with w the share of the tokens and φ the fixed share of a pass. An estimator keeps the seconds at
// w = 1, so that it can compare steps.

const (
	// lines is the factor by which earlier steps lose weight in a line with every step.
	lines = 0.9
	// leastSpread is the least deviation of w, over microbatches and steps, from which φ can be
	// estimated.
	leastSpread = 0.03
	// mostFixed bounds φ, because noise may make the estimate too large.
	mostFixed = 0.8
	// foreseen is the number of newest steps whose mean work predicts that of the next step.
	foreseen = 4
)

// line is weighted sums over microbatches, from which a straight line is fitted.
type line struct {
	N       float64 `json:"n"`
	Work    float64 `json:"work"`
	Square  float64 `json:"square"`
	Seconds float64 `json:"seconds"`
	Both    float64 `json:"both"`
}

// add adds the microbatches of a step.
func (a *line) add(samples []cost.Stage, work []float64) {
	for _, x := range []*float64{&a.N, &a.Work, &a.Square, &a.Seconds, &a.Both} {
		*x *= lines
	}
	for m, s := range samples {
		if w, seconds := workOf(work, m), s.Seconds(); w > 0 {
			a.N, a.Work, a.Square = a.N+1, a.Work+w, a.Square+w*w
			a.Seconds, a.Both = a.Seconds+seconds, a.Both+w*seconds
		}
	}
}

// fixed returns φ; 0 if work varies too little to estimate it.
func (a *line) fixed() float64 {
	spread := a.N*a.Square - a.Work*a.Work
	if spread <= leastSpread*leastSpread*a.N*a.N {
		return 0
	}
	slope := (a.N*a.Both - a.Work*a.Seconds) / spread
	base := (a.Seconds - slope*a.Work) / a.N
	if !(base > 0) {
		return 0
	}
	return min(mostFixed, base/(base+max(0, slope)))
}

// workOf returns the share of the tokens that a layer works on in a microbatch.
func workOf(work []float64, microbatch int) float64 {
	if work == nil {
		return 1
	}
	return work[microbatch]
}

// full returns the samples scaled to passes on all tokens. Passes that worked on no tokens are left
// out, since they give no time.
func full(samples []cost.Stage, fixed float64, work []float64) []cost.Stage {
	if work == nil {
		return samples
	}
	return cost.Divided(samples, func(m int) float64 { return cost.OfFull(fixed, work[m]) })
}

// work returns, by layer of a stage and microbatch, the share of the tokens that the layer worked
// on. A row is nil if that is all tokens.
func work(spans []trace.Span, index map[int]int, microbatches, tokens int) [][]float64 {
	rows := make([][]float64, len(index))
	for _, s := range spans {
		if s.Op != trace.F || s.Tokens == tokens {
			continue
		}
		row := &rows[index[s.Layer]]
		if *row == nil {
			*row = make([]float64, microbatches)
			for m := range *row {
				(*row)[m] = 1
			}
		}
		(*row)[s.Microbatch] = float64(s.Tokens) / float64(tokens)
	}
	return rows
}

// row returns the work of a layer by microbatch, nil for all tokens.
func row(work [][]float64, layer int) []float64 {
	if work == nil {
		return nil
	}
	return work[layer]
}

// larger returns the larger work of two replicas; nil if both worked on all tokens.
func larger(a, b []float64) []float64 {
	if a == nil {
		a, b = b, a
	}
	for m := range a {
		a[m] = max(a[m], workOf(b, m))
	}
	return a
}

// working records the work of layers in a step.
func (e *estimator) working(o *observed, samples [][]cost.Stage, work [][]float64) {
	if work == nil {
		return
	}
	if e.Lines == nil {
		e.Lines = make([]line, len(work))
	}
	o.Work = make([]float64, len(work))
	for l := range work {
		o.Work[l] = cost.MeanOfFull(e.fixed(l), work[l])
		e.Lines[l].add(samples[l], work[l])
	}
}

// fixed returns φ of a layer.
func (e *estimator) fixed(layer int) float64 {
	if e.Lines == nil {
		return 0
	}
	return e.Lines[layer].fixed()
}

// comes returns the predicted time of a layer's passes in the next step, divided by that on all
// tokens.
func (e *estimator) comes(layer int) float64 {
	newest := e.Steps[max(0, len(e.Steps)-foreseen):]
	sum := 0.0
	for _, o := range newest {
		if o.Work == nil {
			sum++
		} else {
			sum += o.Work[layer]
		}
	}
	return sum / float64(len(newest))
}

// expect evens out the samples of a layer whose passes are drawn once for a step. It replaces them
// by their mean over draws: the seconds of the passes times the share of the steps that run them.
// In a step without the passes their known seconds are used. So a draw does not change the cost of
// the layer.
func (p *Profiler) expect(l *layerReport, spans []trace.Span) {
	at := slices.IndexFunc(spans, func(s trace.Span) bool { return s.Op == trace.F && s.Layer == l.id })
	if at < 0 || spans[at].Expected == 0 || spans[at].Expected == 1 {
		return
	}
	share, done, known := spans[at].Expected, spans[at].Tokens > 0, p.of(l.id).seconds
	if !done && known.Seconds() == 0 {
		return // the seconds of the passes are not known
	}
	l.work = make([]float64, len(l.samples))
	for m := range l.samples {
		if !done {
			l.samples[m] = known
		}
		l.samples[m], l.work[m] = l.samples[m].Scale(share), share
	}
}
