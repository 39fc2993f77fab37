package record

import (
	"fmt"
	"strings"

	"dynmo/src/balance"
	"dynmo/src/migrate"
	"dynmo/src/plan/policy"
)

// sparsityKey is the detail of a change of the model that tells the share of the
// prunable parameters that are gone.
const sparsityKey = "sparsity"

// changeLine tells a change of the model before a step.
func changeLine(step int, what string, detail map[string]any, seconds float64) string {
	return fmt.Sprintf("step %d: the model changes: %s; took %s", step, ChangeText(what, detail), Duration(seconds))
}

// validationLine returns the log line of a validation loss: Megatron-LM's fields, with iterations
// from 1, then the time.
func validationLine(step int, v Validation, clock string) string {
	return fmt.Sprintf(" validation loss at iteration %d | lm loss value: %.6E | lm loss PPL: %.6E | time: %s | clock: %s |",
		step+1, v.Loss, v.Perplexity(), Duration(v.Seconds), clock)
}

// moveLine tells a move of layers after a step.
func moveLine(step int, moved migrate.Moved, seconds float64, perStage []int) string {
	return fmt.Sprintf("step %d: moved %s, %s, in %s; layers per stage %s",
		step, count(moved.Layers, "layer"), Bytes(moved.Bytes), Duration(seconds), strings.Trim(fmt.Sprint(perStage), "[]"))
}

// answer is what a decision came to: that layers or the order of work change, or why
// they stay, as plan.Kept has it.
type answer string

const (
	answerNone    answer = "" // nothing was decided since the model changed
	answerFull    answer = "full"
	answerMove    answer = "move"
	answerReorder answer = "reorder"
)

// decisionLine returns the log line of a decision after a step of makespan seconds, and its
// answer.
func decisionLine(d Done, makespan float64) (a answer, line string) {
	why := d.Why
	gain := fmt.Sprintf("a step of %s is predicted to take %s, %s%s",
		Duration(makespan), Duration(why.Predicted), faster(makespan, why.Predicted), uncertainty(why.Gain))
	gap := fmt.Sprintf("; slowest stage %.1f %% above the best possible", 100*max(0, balance.Gap(why.Bottleneck, why.Optimum)))
	switch {
	case why.Full != nil:
		a, line = answerFull, fmt.Sprintf("layers stay: %v", why.Full)
	case why.Undone:
		a, line = answerMove, "layers move back: steps are slower than before the last move, for something that no layer's cost tells"
	case !d.Next.Cuts.Equal(d.Ran.Cuts):
		a, line = answerMove, "layers move: "+gain+gap
	case !d.Next.Schedule.Equal(d.Ran.Schedule):
		a, line = answerReorder, fmt.Sprintf("schedule %s instead of %s: %s", d.Next.Schedule.Kind, d.Ran.Schedule.Kind, gain)
	default:
		a, line = answer("stay: "+why.Kept), "layers stay: "+kept(why)+gap
	}
	return a, fmt.Sprintf("step %d: %s", d.Step, line)
}

// placeLine tells which pieces of layers move.
func placeLine(d Done) string {
	p := d.Why.Placed
	return fmt.Sprintf("step %d: pieces of %d layers move: the fullest replica has %.2f times its even share of the work, and is to have %.2f (at least %.2f); a step is predicted to take %.1f %% less",
		d.Step, p.Layers, p.Now, p.Then, p.Bound, 100*p.Gain)
}

// kept tells why layers stay.
func kept(why policy.Reason) string {
	others := fmt.Sprintf("other cuts are predicted to save %.1f %% of a step%s", 100*why.Gain.Expected, uncertainty(why.Gain))
	switch why.Kept {
	case policy.KeptUncertain:
		return others + ", which may be noise"
	case policy.KeptPrice:
		return others + ", less than moving takes"
	case policy.KeptUndone:
		return "the last move made steps slower and was undone"
	case policy.KeptRefused:
		return "a rank had no memory for the last move"
	}
	return "no other cuts are predicted to be faster"
}

// uncertainty tells how much of a gain noise may have feigned; nothing where costs are
// known.
func uncertainty(g policy.Gain) string {
	if g.Least == g.Expected {
		return ""
	}
	return fmt.Sprintf(" (uncertain by %.1f %%)", 100*(g.Expected-g.Least))
}

// effectLine tells what a move was worth, once a step after it has been measured, or
// that none will be.
func effectLine(e Event) string {
	before, after := float64(e.Before), float64(e.After)
	if after == 0 {
		return fmt.Sprintf("step %d: the move could not be measured: the model changed or the run ended first; %s was predicted",
			e.Step, faster(before, float64(e.Predicted)))
	}
	line := fmt.Sprintf("a step takes %s, %s than the %s before it; %s was predicted",
		Duration(after), faster(before, after), Duration(before), Duration(float64(e.Predicted)))
	if after >= before && float64(e.Predicted) < before {
		return fmt.Sprintf("step %d: the move did not pay: %s (%s)", e.Step, line, faster(before, float64(e.Predicted)))
	}
	return fmt.Sprintf("step %d: since the move %s", e.Step, line)
}

// faster compares seconds after a change with those before it.
func faster(before, after float64) string {
	if after > before {
		return fmt.Sprintf("%.2fx slower", after/before)
	}
	return fmt.Sprintf("%.2fx faster", before/after)
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
