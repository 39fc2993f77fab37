package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"dynmo/src/record"
)

// note explains columns of a table.
type note struct {
	columns []string
	text    string // names the columns
}

// explain returns the notes on the columns that a table has.
func explain(header []string, notes []note) (list []string) {
	for _, n := range notes {
		if slices.ContainsFunc(n.columns, func(column string) bool { return slices.Contains(header, column) }) {
			list = append(list, n.text)
		}
	}
	return list
}

// sentences joins notes for a page.
func sentences(notes []string) string {
	var list []string
	for _, text := range notes {
		list = append(list, sentenceCase(text))
	}
	return strings.Join(list, " ")
}

// explained writes a table, and below it a line for each note on its columns.
func explained(out io.Writer, header []string, rows [][]string, notes []note) error {
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(explain(header, notes), "\n"))
	return err
}

// runNotes explain the columns of Table.
var runNotes = []note{
	{[]string{"layout"}, "layout: stages x replicas"},
	{[]string{"loss"}, "loss: of the last step"},
	{[]string{"before"}, "before, after: median step time before anything moved or changed, and over the second half of the\n  steps after the last move or change"},
	{[]string{"bubble"}, "bubble: idle share of all stages' time, over the same steps as after"},
	{[]string{"imbalance"}, "imbalance: (max - min) / mean of the stages' work, over the same steps"},
	{[]string{"moved"}, "moved: bytes of layers sent"},
	{[]string{"balancing"}, "balancing: measuring, deciding and moving, as a share of the training time"},
	{[]string{"headroom"}, headroomNote},
}

// headroomNote explains a bound that no cuts need reach.
const headroomNote = "headroom: no other cuts could make the step more than this many times faster"

// phaseNotes explain the columns of Phases.
var phaseNotes = []note{
	{[]string{"step"}, "step: the first one after a change of the model; medians are over the second half of the steps until\n  the next change"},
	{[]string{"frozen"}, "frozen: layers, from the first on"},
	{[]string{"work"}, "work: share of the tokens, or of attention's scores, that blocks work on"},
	{[]string{"ranks"}, "ranks: that train at the end"},
	{[]string{"throughput"}, "throughput: tokens per second, on those of the run's first phase"},
	{[]string{"makespan"}, "makespan: from the first forward of a step to its last backward"},
	{[]string{"speedup"}, "speedup: on the first run's makespan, same work"},
	{[]string{"bottleneck"}, "bottleneck, optimum: seconds per microbatch of the slowest stage, and the least possible"},
	{[]string{"gap"}, "gap: slowest stage above the least possible on the run's costs"},
	{[]string{"headroom"}, headroomNote},
	{[]string{"predicted"}, "predicted: the makespan, simulated on the costs"},
	{[]string{"to first"}, "to first: makespan/predicted against the first run's; 0 % means that the makespan fell by what the\n  costs of the stages say"},
}

// worthNotes explain the columns of Worths.Table.
var worthNotes = []note{
	{[]string{"simulated"}, "simulated: mean step with the run's cuts, on the recorded costs of layers. Executed runs of the same\n  work are compared on one set of costs, so that noise favours none"},
	{[]string{"speedup"}, "speedup: over the best run whose layers never moved (or over this run's first cuts), balancing\n  time included; \"-\" where times mean nothing"},
	{[]string{intervalColumn}, intervalColumn + ": of the speedup (bootstrap over microbatches)"},
	{[]string{"ceiling"}, "ceiling: speedup of the best cuts for the costs of every phase"},
}

// intervalColumn is the header of the percentiles of the speedup.
const intervalColumn = "90 % interval"
