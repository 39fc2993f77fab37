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

	reason string  // consecutive rows with one reason are joined; "" for rows that stay alone
	share  float64 // share of a step that a move could have saved, for some reasons
	bytes  int64   // of the last event
	many   int     // number of events in the row
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
func (r Run) eventRows() (list []eventRow) {
	moves, decided := map[int]record.Event{}, map[int]bool{} // by step
	for _, e := range r.Events {
		if e.Moved() {
			moves[e.Step] = e
		}
		decided[e.Step] = decided[e.Step] || e.Kind == record.Balance
	}
	packing := r.packing()
	for _, e := range r.Events {
		row := eventRow{First: e.Step, Last: e.Step, Kind: string(e.Kind), Took: float64(e.Seconds), bytes: e.Bytes, many: 1}
		move, moved := moves[e.Step]
		switch {
		case e.Refused() != "":
			row.Text = "Layers stay: a rank had no memory for the move: " + e.Refused() + "."
		case e.Kind == record.Migrate && decided[e.Step]:
			continue // part of the decision's row
		case e.Kind == record.Migrate:
			row.Text = r.moveText(e)
		case e.Kind == record.Balance && moved:
			row.Kind, row.Took = string(record.Migrate), row.Took+float64(move.Seconds)
			row.Text = r.moveText(move) + effect(e)
		case e.Kind == record.Balance:
			row.reason, row.share, row.Text = r.stay(e)
		case e.Kind == record.Saved && e.Detail["error"] != nil:
			row.Text = fmt.Sprintf("No checkpoint could be written: %v.", e.Detail["error"])
		case e.Kind == record.Saved:
			row.reason = saved
		case e.Kind == record.Slow && e.Detail["over"] == true:
			row.Text = fmt.Sprintf("Rank %v (host %v) recovered.", e.Detail["rank"], e.Detail["host"])
		case e.Kind == record.Slow:
			row.Text = fmt.Sprintf("Rank %v (host %v) is a straggler (score %.2f).", e.Detail["rank"], e.Detail["host"], e.Detail["score"])
		case e.Kind == record.Place:
			row.Text = placeText(e)
		case e.Kind == record.Resumed && e.Detail["checkpoint"] == nil:
			row.Text = "The run began again: it had no checkpoint."
		case e.Kind == record.Resumed:
			row.Text = fmt.Sprintf("The run was started again (restart %v) from %v.", e.Detail["restart"], e.Detail["checkpoint"])
		case e.Kind == record.Repack:
			row.Text = packedText(e, packing, r.timesAre())
		case e.Kind == record.Release:
			row.Text = detailText[record.Released](e)
		case e.Kind == record.Dynamic:
			what, _ := e.Detail["what"].(string)
			row.Text = sentenceCase(cmp.Or(dynamic.ChangeText(what, e.Detail), "the model changed"))
		default:
			row.Text = dynamic.Figures(e.Detail)
		}
		if n := len(list); n > 0 && row.reason != "" && list[n-1].reason == row.reason {
			last := list[n-1]
			row.First, row.Took, row.share, row.many = last.First, row.Took+last.Took, max(row.share, last.share), last.many+1
			list = list[:n-1]
		}
		if row.reason != "" {
			row.Text = row.reasonText()
		}
		row.Text = files.Visible(row.Text)
		list = append(list, row)
	}
	return list
}

// Reasons of rows that no decision names: a checkpoint was written; a decision left cuts that it did
// not weigh against others.
const saved, unweighed = "saved", "unweighed"

// stay returns the reason why layers stayed after a decision, and the share of a step that a move
// could have saved. For other outcomes it returns a sentence.
func (r Run) stay(e record.Event) (reason string, share float64, text string) {
	kept, _ := e.Detail["kept"].(string)
	gain, weighed := e.Detail["gain"].(float64)
	gap, _ := e.Detail["gap"].(float64)
	before, after := r.index(e.Step), r.index(e.Step+1)
	switch {
	case kept == "best" || kept == "uncertain" || kept == "price":
		return kept, gain, ""
	case strings.HasPrefix(kept, record.NotPacked):
		return "", 0, sentenceCase(kept)
	case kept != "":
		return "", 0, "Placement kept: " + kept + "."
	case after < len(r.Metrics) && r.Metrics[before].Schedule != r.Metrics[after].Schedule:
		return "", 0, fmt.Sprintf("Placement kept; the schedule is now %v.", e.Detail["schedule"]) + effect(e)
	case weighed:
		return "", 0, "Placement kept; the order of work changed." + effect(e)
	}
	return unweighed, gap, ""
}

// reasonText returns the sentence of a row with a reason.
func (e eventRow) reasonText() string {
	lead, share := "Placement kept: ", dynamic.Percent(e.share)
	if e.many > 1 {
		lead, share = fmt.Sprintf("Placement kept, %d decisions: ", e.many), "up to "+share
	}
	switch {
	case e.reason == saved && e.many > 1:
		return fmt.Sprintf("%d checkpoints were written, the last of %s.", e.many, record.Bytes(e.bytes))
	case e.reason == saved:
		return fmt.Sprintf("A checkpoint was written, %s.", record.Bytes(e.bytes))
	case e.reason == "uncertain":
		return lead + "the best move would save " + share + " of a step, which is uncertain."
	case e.reason == "price":
		return lead + "the best move would save " + share + " of a step, less than its price."
	case e.reason == unweighed && e.share >= 0.0005:
		return lead + "the slowest stage is " + share + " above the optimum."
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

// packedText describes a packing, with the throughput after it, which is measured or simulated.
func packedText(e record.Event, packing *verdict.Packing, timesAre string) string {
	text := detailText[record.Packed](e)
	if packing != nil && packing.Measured(e.Step+1) > 0 {
		text += fmt.Sprintf(" %s: %.2fx the dense model's throughput.", strings.ToUpper(timesAre[:1])+timesAre[1:], packing.Measured(e.Step+1))
	}
	return text + effect(e)
}

// detailText returns the detail of an event, of type T, as a sentence.
func detailText[T fmt.Stringer](e record.Event) string {
	var detail T
	if e.Read(&detail) != nil {
		return dynamic.Figures(e.Detail)
	}
	return sentenceCase(detail.String())
}

// sentenceCase formats a text as a sentence: a capital first and a full stop last.
func sentenceCase(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
