package exit

import (
	"math"

	"dynmo/src/model"
	"dynmo/src/tensor"
)

// learns reports whether the confidence is a classifier's.
func (e *exit) learns() bool { return e.Confidence == classifier }

// classifier is the confidence of a classifier, and what the names of its parameters begin with.
const classifier = "classifier"

// staying reports whether tokens that are confident go on all the same: where losses are weighted,
// and in the second stage, in which classifiers learn alone whether the exit agrees with the last layer.
func (e *exit) staying() bool {
	return e.Weighted || e.Agree && e.norm.Params()[0].Frozen && !e.classifier.W.Frozen
}

// agrees reports whether labels are the last layer's.
func (e *exit) agrees() bool { return e.Agree && e.staying() }

// judge notes the confidence of every token that enters: 0 where kernels do no arithmetic, and in a
// text of which no token leaves.
func (e *exit) judge(x *model.Exec, b *model.Batch, saved, inp tensor.Mem, d *departure) error {
	n := b.Queries
	if x.Text != nil && (x.Stays || n == 0) {
		clear(d.confidence)
		return nil
	}
	if e.Confidence == saturation {
		return d.saturate(x, b, inp)
	}
	s, _ := e.saved(x, b, saved, n)
	inp = b.QueryRows(inp)
	if e.learns() {
		x.Stream.Copy(s.ones, tensor.From(d.ones[:n]))
		e.classifier.Forward(x, n, s.judged, inp)
		x.Backend.SoftmaxMerge(x.Stream, s.confidence, tensor.Mem{}, s.judged, s.ones, n, 2, 0)
	} else {
		x.Stream.Copy(s.targets, tensor.From(d.data[:n]))
		e.project(x, n, s, inp)
		x.Backend.SoftmaxMerge(x.Stream, s.confidence, tensor.Mem{}, s.logits, s.targets, n, e.vocab, 0)
	}
	if err := d.read(x, s.confidence); err != nil {
		return err
	}
	for i := range n {
		likelier := 1.0 // than the largest
		if e.learns() {
			likelier = math.Exp(d.stats[2*n+i] - d.stats[i])
		}
		if d.confidence[i] = 0; d.stats[n+i] > 0 {
			d.confidence[i] = likelier / d.stats[n+i]
		}
	}
	return nil
}

// classify does the loss of the classifier, and its gradient, by the labels of d.found.
func (e *exit) classify(x *model.Exec, s exitSaved, d *departure) {
	n := len(d.rows)
	d.runs(func(at, first, count int) {
		x.Stream.Copy(model.RowsOf(s.verdict, n, at, count), model.RowsOf(s.judged, d.came, first, count))
	})
	x.Stream.Copy(s.found, tensor.From(d.found[:n]))
	x.Backend.CrossEntropy(x.Stream, s.classifier, s.verdictStats, tensor.Mem{}, s.verdict, s.found, x.Scale, n, 2, 0)
	rows, factors := d.balance()
	x.Stream.Copy(s.rows, rows)
	x.Stream.Copy(s.factors, factors)
	x.Backend.GatherRows(x.Stream, s.balanced, s.verdict, s.rows, s.factors, n, 2)
}

// Learn notes what the last layer found likeliest.
func (d *departure) Learn(likeliest []int32) { d.last = likeliest }

// compare labels every row by whether the exit agrees with the last layer: all tokens are rows.
func (d *departure) compare() {
	for i := range d.rows {
		d.found[i] = 0
		if d.likeliest[i] == d.last[i] {
			d.found[i] = 1
		}
	}
}

// balance returns the places of rows, and the weights of the classifier's losses: a row counts as
// much as the share of the rows with the other label.
func (d *departure) balance() (places, factors tensor.Mem) {
	n, labelled := len(d.rows), 0.0
	for _, label := range d.found[:n] {
		labelled += float64(label)
	}
	share := labelled / float64(n)
	wide := d.X.Backend.DType().Wide()
	for i, label := range d.found[:n] {
		factor := share
		if label == 1 {
			factor = 1 - share
		}
		if wide == tensor.F64 {
			tensor.Of[float64](d.factors)[i] = factor
		} else {
			tensor.Of[float32](d.factors)[i] = float32(factor)
		}
	}
	return tensor.From(d.places[:n]), d.factors.Span(0, int64(n)*wide.Size())
}
