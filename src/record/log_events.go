package record

import (
	"fmt"
	"strings"

	"dynmo/src/balance"
	"dynmo/src/layout"
	"dynmo/src/plan"
)

// sparsityKey is the detail of a model change with the pruned share of the prunable parameters.
const sparsityKey = "sparsity"

// validationLine returns the log line of a validation loss. It has Megatron-LM's fields. If
// tokens leave early the loss at the last layer follows, and then the time.
func validationLine(step int, v Validation, clock string) string {
	last := ""
	if v.leave() {
		last = fmt.Sprintf("lm loss at the last layer: %.6E | ", v.Last)
	}
	return fmt.Sprintf(" validation loss at iteration %d | lm loss value: %.6E | lm loss PPL: %.6E | %stime: %s | clock: %s |",
		Iteration(step), v.Loss, v.Perplexity(), last, Duration(v.Seconds), clock)
}

// moveLine returns the log line of a move of layers after a step.
func moveLine(step int, moved layout.Moved, seconds float64, perStage []int) string {
	return fmt.Sprintf("step %d: moved %s, %s, in %s; layers per stage %s",
		step, Counted(moved.Layers, "layer"), Bytes(moved.Bytes), Duration(seconds), strings.Trim(fmt.Sprint(perStage), "[]"))
}

// answer is the outcome of a decision. Either layers or the order of work change, or it is the
// plan.Kept reason for keeping the placement.
type answer string

const (
	answerNone    answer = "" // nothing was decided since the model changed
	answerFull    answer = "full"
	answerMove    answer = "move"
	answerReorder answer = "reorder"
)

// decisionLine returns the log line of a decision after a step, and the decision's answer. makespan
// is that of the step, in seconds.
func decisionLine(d Done, makespan float64) (a answer, line string) {
	why := d.Why
	gain := fmt.Sprintf("step %s, predicted: %s, %s%s",
		Duration(makespan), Duration(why.Predicted), faster(makespan, why.Predicted), atLeast(makespan, why))
	gap := fmt.Sprintf("%.1f %% above the optimum", 100*max(0, balance.Gap(why.Bottleneck, why.Optimum)))
	switch {
	case why.Full != nil:
		a, line = answerFull, fmt.Sprintf("layers stay: %v", why.Full)
	case why.Undone:
		a, line = answerMove, "undoing the last move: steps became slower, and layer costs do not explain it"
	case !d.Next.Cuts.Equal(d.Ran.Cuts):
		a, line = answerMove, "moving layers: "+gain+"; slowest stage "+gap
	case !d.Next.Schedule.Equal(d.Ran.Schedule):
		a, line = answerReorder, fmt.Sprintf("schedule %s replaces %s: %s", d.Next.Schedule.Kind, d.Ran.Schedule.Kind, gain)
	default:
		a, line = answer("stay: "+why.Kept), fmt.Sprintf("layers stay: %s; slowest stage %s", kept(why), gap)
	}
	return a, fmt.Sprintf("step %d: %s", d.Step, line)
}

// placeLine returns the log line of a move of pieces of layers.
func placeLine(d Done) string {
	p := d.Why.Placed
	return fmt.Sprintf("step %d: moving pieces of %s: work of the fullest replica over its even share %.2f, predicted: %.2f (lower bound %.2f), steps %.1f %% shorter",
		d.Step, Counted(p.Layers, "layer"), p.Now, p.Then, p.Bound, 100*p.Gain)
}

// kept returns the reason for keeping the placement.
func kept(why plan.Reason) string {
	others := fmt.Sprintf("the best move would save %.1f %% of a step", 100*why.Gain.Expected)
	switch why.Kept {
	case plan.KeptUncertain:
		return fmt.Sprintf("%s, give or take %.1f %%", others, 100*(why.Gain.Expected-why.Gain.Least))
	case plan.KeptPrice:
		return others + ", less than its price"
	case plan.KeptUndone:
		return "the last move made steps slower and was undone"
	case plan.KeptRefused:
		return "a rank had no memory for the last move"
	}
	return "no move pays"
}

// atLeast returns the least speedup if noise has enlarged the expected gain, "" if costs are exact.
// makespan is that of the present step.
func atLeast(makespan float64, why plan.Reason) string {
	noise := why.Gain.Expected - why.Gain.Least
	if noise == 0 {
		return ""
	}
	return fmt.Sprintf(" (at least %.2fx)", makespan/(why.Predicted+noise*makespan))
}

// effectLine returns the log line with the measured effect of a move. If no step after the move was
// measured, the line says that.
func effectLine(e Event) string {
	before, after := float64(e.Before), float64(e.After)
	if after == 0 {
		return fmt.Sprintf("step %d: move not measured: the model changed or the run ended first (predicted: %s)",
			e.Step, faster(before, float64(e.Predicted)))
	}
	line := fmt.Sprintf("step %s, %s than %s before (predicted: %s",
		Duration(after), faster(before, after), Duration(before), Duration(float64(e.Predicted)))
	if after >= before && float64(e.Predicted) < before {
		return fmt.Sprintf("step %d: the move did not pay: %s, %s)", e.Step, line, faster(before, float64(e.Predicted)))
	}
	return fmt.Sprintf("step %d: measured after the move: %s)", e.Step, line)
}

// faster formats the ratio of the seconds before a change and after it.
func faster(before, after float64) string {
	if after > before {
		return fmt.Sprintf("%.2fx slower", after/before)
	}
	return fmt.Sprintf("%.2fx faster", before/after)
}

// Counted formats a number of things, with a plural s.
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
