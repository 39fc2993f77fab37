package report

import (
	"fmt"
	"io"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// packing returns the result of packing onto fewer ranks, nil if nothing was packed.
func (r Run) packing() *verdict.Packing {
	var p verdict.Packer
	record.Replay(r.Metrics, r.Events, p.Step, p.Event)
	return p.Packing()
}

// PackedSentence returns one sentence on the result of packing.
func PackedSentence(p verdict.Packing) string {
	list := []string{
		fmt.Sprintf("packed from %d ranks to %d", p.RanksFirst, p.RanksLast),
		fmt.Sprintf("on average %s ranks", dynamic.Significant(float64(p.MeanRanks))),
	}
	hours := func(nodes int, what string, hours record.Float) string {
		plural := "s"
		if nodes == 1 {
			plural = ""
		}
		return fmt.Sprintf("%d node%s %s, %s node-hours", nodes, plural, what, dynamic.Significant(float64(hours)))
	}
	if p.NodesGivenBack > 0 {
		list = append(list, hours(p.NodesGivenBack, "given back", p.HoursGivenBack))
	}
	if p.NodesIdle > 0 {
		list = append(list, hours(p.NodesIdle, "idle, still allocated", p.HoursIdle))
	}
	if p.Failed == 1 {
		list = append(list, "Slurm refused to take nodes back once")
	} else if p.Failed > 1 {
		list = append(list, fmt.Sprintf("Slurm refused to take nodes back %d times", p.Failed))
	}
	switch {
	case p.Throughput > 0:
		list = append(list, fmt.Sprintf("%.2fx the dense model's throughput", p.Throughput))
	case p.Predicted > 0:
		list = append(list, fmt.Sprintf("predicted: %.2fx the dense model's throughput", p.Predicted))
	}
	return strings.Join(list, "; ")
}

// Unpacked is the sentence for a run that may pack but never did.
const Unpacked = "never packed: all ranks were needed throughout"

// packed returns one sentence on the result of packing; "" for runs that may not pack.
func (r Run) packed(p *verdict.Packing) string {
	if p != nil {
		return PackedSentence(*p)
	}
	if r.Config.Packs() {
		return Unpacked
	}
	return ""
}

// Packings writes a table with a line for each packed run, explained by PackingLegend. Below it is
// a sentence for each run with packing in its settings. It writes nothing if there is no such run.
func Packings(out io.Writer, runs []Run) error {
	var rows [][]string
	var sentences strings.Builder
	for _, r := range runs {
		s, p := r.row(), r.packing()
		text := r.packed(p)
		if text == "" {
			continue
		}
		sentences.WriteString("\n")
		if len(runs) > 1 {
			fmt.Fprintf(&sentences, "%s: ", s.title())
		}
		fmt.Fprintln(&sentences, text)
		if p != nil {
			rows = append(rows, packingCells(s.Run, *p))
		}
	}
	if sentences.Len() == 0 {
		return nil
	}
	if rows != nil {
		var table strings.Builder
		_ = record.Table(&table, packingHeader, rows) // a builder accepts all writes
		if _, err := fmt.Fprintf(out, "\n%s\n%s", table.String(), PackingLegend); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, sentences.String())
	return err
}

var packingHeader = []string{"run", "ranks", "mean", "nodes", "given back", "idle", "packings", "releases", "throughput", "predicted"}

// packingCells returns a line of Packings, under packingHeader.
func packingCells(name string, p verdict.Packing) []string {
	hours := func(nodes int, hours record.Float) string {
		return fmt.Sprintf("%d, %s h", nodes, dynamic.Significant(float64(hours)))
	}
	return []string{
		name, fmt.Sprintf("%d to %d", p.RanksFirst, p.RanksLast), dynamic.Significant(float64(p.MeanRanks)),
		fmt.Sprintf("%d to %d", p.NodesFirst, p.NodesLast), hours(p.NodesGivenBack, p.HoursGivenBack), hours(p.NodesIdle, p.HoursIdle),
		fmt.Sprint(p.Packings), fmt.Sprintf("%d of %d", p.Releases, p.Releases+p.Failed), times(p.Throughput), times(p.Predicted),
	}
}

// times formats a share of the dense model's throughput, "-" if it is not known.
func times(share record.Float) string {
	if !(share > 0) {
		return "-"
	}
	return fmt.Sprintf("%.2fx", share)
}

// PackingLegend explains the columns of Packings.
const PackingLegend = `ranks, nodes: that train, in the first step and in the last.  mean: of ranks, over seconds of steps
given back, idle: nodes that Slurm took back, and those that train no more but are still allocated,
  with node-hours by real time until the end of the run.  releases: done, of those asked for
throughput: of the last number of ranks, against the steps before the model first changed, medians
predicted: by the last packing, against the dense model on all ranks in its best cuts
`
