package report

import (
	"fmt"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// fact is a number of the run with an explanation, or a line of its provenance.
type fact struct{ Name, Value, Note string }

// facts returns the main results of the run, which the page shows first.
func (r Run) facts(s Row) []fact {
	clock := s.Clock + " clock"
	first := r.first()
	step := fact{"step time", milliseconds(s.After) + " ms", "median of the second half, " + clock}
	if first.hi < len(r.Metrics) {
		step.Value = milliseconds(s.Before) + " → " + step.Value
		step.Note = r.steps(first) + ", before anything moved or changed → the end; medians, " + clock
	}
	facts := []fact{step}
	if r.simulated() {
		facts = append(facts, fact{"simulated", "no loss", "nothing ran: times are simulated, on " + r.costsSource()})
	} else if r.Config.Dynamic.Replay != "" {
		facts = append(facts, fact{"replayed", "no loss", "loads were forced by " + r.Config.Dynamic.Replay})
	} else {
		facts = append(facts, fact{"final loss", fmt.Sprintf("%.5g", s.Loss), fmt.Sprintf("nats per token; %v", s.Loss)})
	}
	if last := r.validated(); last != nil {
		text := fmt.Sprintf("after step %d, of data that nothing was trained on; perplexity %.5g", last.Step, last.ValidationPerplexity)
		if last.ValidationLastLoss != 0 {
			text += fmt.Sprintf("; %.5g if no token leaves before the last layer", last.ValidationLastLoss)
		}
		facts = append(facts, fact{"validation loss", fmt.Sprintf("%.5g", last.ValidationLoss), text})
	}
	if pruned := float64(r.Metrics[len(r.Metrics)-1].Sparsity); pruned > 0 {
		facts = append(facts, fact{"sparsity", dynamic.Significant(100*pruned) + " %", "of the prunable weights pruned at the end"})
	}
	bubble := r.middle(first, func(m record.Metrics) record.Float { return m.BubbleRatio })
	skipped := 0
	for _, m := range r.Metrics {
		if m.Skipped {
			skipped++
		}
	}
	moved := ""
	if s.Moved > 0 {
		moved = " " + record.Bytes(s.Moved) + " of layers"
	}
	flops := float64(r.middle(r.lastSteps().late(), func(m record.Metrics) record.Float { return record.Float(m.ModelFLOPs(r.Config)) }))
	return append(facts,
		fact{"throughput", dynamic.Significant(flops/1e12) + " TFLOP/s", r.ofPeak(flops) + "of a rank at the end, counted as in the dense model, " + clock},
		fact{"bubble ratio", strings.TrimSuffix(share(float64(bubble), 1), " %") + " → " + share(float64(s.Bubble), 1), "idle share of the stages' time in the pipeline, first → last"},
		fact{"balancing", share(float64(s.Overhead), 1), "of all time went to measuring, deciding and moving" + moved},
		fact{"steps", fmt.Sprintf("%d of %d", len(r.Metrics), r.Config.Train.Steps), fmt.Sprintf("%d of them without an update", skipped)})
}

// ofPeak returns the share of a rank's operations per second in what its hardware can do, with a comma; "" if
// that is not known.
func (r Run) ofPeak(flops float64) string {
	if r.End == nil || r.End.Peak == nil || !(r.End.Peak.FLOPs > 0) {
		return ""
	}
	share := dynamic.Percent(flops / r.End.Peak.FLOPs)
	if r.End.Peak.Of == verdict.DataSheet {
		return "MFU " + share + ", "
	}
	return share + " of sgemm, "
}

// milliseconds formats seconds as milliseconds.
func milliseconds[F ~float64](seconds F) string { return dynamic.Significant(1e3 * float64(seconds)) }
