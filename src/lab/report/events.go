package report

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"dynmo/src/dynamic"
	"dynmo/src/files"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// eventRow is an event as a sentence, or several equal consecutive events.
type eventRow struct {
	First, Last int // steps
	Kind        string
	Text        string
	Took        float64 // seconds, summed over the events of the row

	kept  string  // reason why layers stayed: consecutive rows with a reason are joined; "" for other rows
	share float64 // share of a step that a move could have saved, for some reasons
	many  int     // number of decisions in the row
}

// Steps names the steps of the row.
func (e eventRow) Steps() string {
	if e.First == e.Last {
		return fmt.Sprint(e.First)
	}
	return fmt.Sprintf("%d – %d", e.First, e.Last)
}

// eventRows returns the events of the run. A move and its decision are one row. Consecutive
// decisions that moved nothing are also one row.
func (r Run) eventRows() []eventRow {
	moves := map[int]record.Event{} // by step, until they are reported
	for _, e := range r.Events {
		if e.Moved() {
			moves[e.Step] = e
		}
	}
	decided := map[int]bool{}
	for _, e := range r.Events {
		decided[e.Step] = decided[e.Step] || e.Kind == record.Balance
	}
	packing := r.packing()
	var list []eventRow
	for _, e := range r.Events {
		row := eventRow{First: e.Step, Last: e.Step, Kind: string(e.Kind), Took: float64(e.Seconds), many: 1}
		move, moved := moves[e.Step]
		switch {
		case e.Refused() != "":
			row.Text = "Layers stay: a rank had no memory for the move: " + e.Refused() + "."
		case e.Kind == record.Slow:
			row.Text = stragglerText(e)
		case e.Kind == record.Migrate && decided[e.Step]:
			continue // part of the decision's row
		case e.Kind == record.Migrate:
			row.Text = r.moveText(e)
		case e.Kind == record.Balance && moved:
			row.Kind, row.Took = string(record.Migrate), row.Took+float64(move.Seconds)
			row.Text = r.moveText(move) + effect(e)
		case e.Kind == record.Balance:
			row.kept, row.share, row.Text = r.stay(e)
			if n := len(list); n > 0 && row.kept != "" && list[n-1].kept == row.kept {
				last := list[n-1]
				row.First, row.Took, row.share, row.many = last.First, row.Took+last.Took, max(row.share, last.share), last.many+1
				list = list[:n-1]
			}
			if row.kept != "" {
				row.Text = row.keptText()
			}
		case e.Kind == record.Saved:
			row.kept, row.Text = saveText(e)
			if n := len(list); n > 0 && row.kept != "" && list[n-1].kept == row.kept {
				last := list[n-1]
				row.First, row.Took, row.many = last.First, row.Took+last.Took, last.many+1
				list = list[:n-1]
				row.Text = fmt.Sprintf("%d checkpoints were written, the last of %s.", row.many, record.Bytes(e.Bytes))
			}
		case e.Kind == record.Place:
			row.Text = placeText(e)
		case e.Kind == record.Resumed:
			row.Text = resumeText(e)
		case e.Kind == record.Repack:
			row.Text = packedText(e, packing)
		case e.Kind == record.Release:
			row.Text = releasedText(e)
		case e.Kind == record.Dynamic:
			row.Text = changeText(e.Detail)
		default:
			row.Text = dynamic.Figures(e.Detail)
		}
		row.Text = files.Visible(row.Text)
		list = append(list, row)
	}
	return list
}

// optimal is the reason of decisions of older versions, which record only the distance of their
// cuts from the optimum.
const optimal = "optimal"

// stay returns the reason why layers stayed after a decision, and the share of a step that a move
// could have saved. For other outcomes it returns a sentence.
func (r Run) stay(e record.Event) (kept string, share float64, text string) {
	kept, _ = e.Detail["kept"].(string)
	gain, weighed := e.Detail["gain"].(float64)
	gap, _ := e.Detail["gap"].(float64)
	before, after := r.index(e.Step), r.index(e.Step+1)
	switch kind := e.Detail["schedule"]; {
	case kept == "best" || kept == "uncertain" || kept == "price":
		return kept, gain, ""
	case strings.HasPrefix(kept, "not packed"):
		return "", 0, sentenceCase(kept)
	case kept != "":
		return "", 0, "Placement kept: " + kept + "."
	case after < len(r.Metrics) && r.Metrics[before].Schedule != r.Metrics[after].Schedule:
		return "", 0, fmt.Sprintf("Placement kept; the schedule is now %v.", kind) + effect(e)
	case weighed:
		return "", 0, "Placement kept; the order of work changed." + effect(e)
	}
	return optimal, gap, ""
}

// saved is the value of eventRow.kept for a written checkpoint.
const saved = "saved"

// saveText describes the outcome of a checkpoint. kept is `saved` if it was written.
func saveText(e record.Event) (kept, text string) {
	if why, ok := e.Detail["error"].(string); ok {
		return "", "No checkpoint could be written: " + why + "."
	}
	return saved, fmt.Sprintf("A checkpoint was written, %s.", record.Bytes(e.Bytes))
}

// stragglerText names the rank that became slower than the others, or recovered.
func stragglerText(e record.Event) string {
	if e.Detail["over"] == true {
		return fmt.Sprintf("Rank %v (host %v) recovered.", e.Detail["rank"], e.Detail["host"])
	}
	return fmt.Sprintf("Rank %v (host %v) is a straggler (score %.2f).", e.Detail["rank"], e.Detail["host"], e.Detail["score"])
}

// resumeText names the checkpoint on which the run resumed.
func resumeText(e record.Event) string {
	from, ok := e.Detail["checkpoint"].(string)
	if !ok {
		return "The run began again: it had no checkpoint."
	}
	return fmt.Sprintf("The run was started again (restart %v) from %s.", e.Detail["restart"], from)
}

// keptText returns the reason why layers stayed, as a sentence.
func (e eventRow) keptText() string {
	lead := "Placement kept: "
	if e.many > 1 {
		lead = fmt.Sprintf("Placement kept, %d decisions: ", e.many)
	}
	saved := dynamic.Significant(100*e.share) + " %"
	if e.many > 1 {
		saved = "up to " + saved
	}
	switch {
	case e.kept == "uncertain":
		return lead + "the best move would save " + saved + " of a step, which is uncertain."
	case e.kept == "price":
		return lead + "the best move would save " + saved + " of a step, less than its price."
	case e.kept == optimal && e.share >= 0.0005:
		return lead + "the slowest stage is " + saved + " above the optimum."
	}
	return lead + "no move pays."
}

// moveText describes a move of layers.
func (r Run) moveText(e record.Event) string {
	text := "Layers moved"
	if n, ok := e.Detail["layers"].(float64); ok {
		text = fmt.Sprintf("%.0f layers moved", n)
		if n == 1 {
			text = "1 layer moved"
		}
	}
	text += ", " + record.Bytes(e.Bytes)
	if i := r.index(e.Step + 1); i < len(r.Metrics) && len(r.Metrics[i].LayersPerStage) <= mostStages {
		text += ": stages now hold " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(r.Metrics[i].LayersPerStage), "[]")), ", ") + " layers"
	}
	return text + "."
}

// mostStages is the largest number of stages that a sentence lists.
const mostStages = 32

// effect describes the step after a decision: its measured and its predicted time.
func effect(e record.Event) string {
	switch {
	case e.Before == 0 || e.Predicted == 0:
		return ""
	case e.After == 0:
		return fmt.Sprintf(" Makespan %s ms before, %s predicted; the model changed before it was measured again.", milliseconds(e.Before), milliseconds(e.Predicted))
	}
	return fmt.Sprintf(" Makespan %s → %s ms, %s predicted.", milliseconds(e.Before), milliseconds(e.After), milliseconds(e.Predicted))
}

// changeText describes a change of the model.
func changeText(of map[string]any) string {
	what, _ := of["what"].(string)
	return sentenceCase(cmp.Or(dynamic.ChangeText(what, of), "the model changed"))
}

// packedText describes a packing, with the throughput that was measured after it.
func packedText(e record.Event, packing *verdict.Packing) string {
	var p record.Packed
	if e.Read(&p) != nil {
		return dynamic.Figures(e.Detail)
	}
	text := sentenceCase(p.String())
	if packing != nil && packing.Measured(e.Step+1) > 0 {
		text += fmt.Sprintf(" Measured: %.2fx the dense model's throughput.", packing.Measured(e.Step+1))
	}
	if e.Before > 0 && e.Predicted > 0 {
		text += fmt.Sprintf(" Makespan %s ms before, %s predicted.", milliseconds(e.Before), milliseconds(e.Predicted))
	}
	return text
}

// releasedText describes the fate of released ranks and their nodes.
func releasedText(e record.Event) string {
	var p record.Released
	if e.Read(&p) != nil {
		return dynamic.Figures(e.Detail)
	}
	return sentenceCase(p.String())
}

// sentenceCase formats a text as a sentence: a capital first and a full stop last.
func sentenceCase(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
