package report

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/files"
	"dynmo/src/record"
)

// label returns the name of the run in tables.
func (r Run) label() string { return files.Visible(cmp.Or(r.Label, r.Config.Run.Name)) }

// Distinguish labels runs with the names of their directories if name, layout and balancer are
// equal, or with their paths if those names are equal, too.
func Distinguish(runs []Run) {
	bases := make(map[string][]string) // paths by name of the directory
	row := func(r Run) [3]string {
		p := r.Config.Parallel
		return [3]string{r.Config.Run.Name, fmt.Sprint(p.Stages, p.Replicas), r.Config.Balance.String()}
	}
	alike := make(map[[3]string]int)
	for _, r := range runs {
		alike[row(r)]++
		base, path := filepath.Base(r.Dir), filepath.Clean(r.Dir)
		if !slices.Contains(bases[base], path) {
			bases[base] = append(bases[base], path)
		}
	}
	for i, r := range runs {
		if alike[row(r)] > 1 {
			runs[i].Label = filepath.Base(r.Dir)
			if len(bases[runs[i].Label]) > 1 {
				runs[i].Label = filepath.Clean(r.Dir)
			}
		}
	}
}

func stepSeconds(m record.Metrics) record.Float { return m.StepSeconds }

// Table writes one line for each run, and notes on the columns. Lines have at most 100 columns if names are
// short. If wide is true all columns are written.
func Table(out io.Writer, runs []Run, wide bool) error {
	header := []string{"run", "layout", "balancer", "loss", "before", "after", "bubble", "imbalance", "moved", "balancing", "headroom", "clock"}
	var rows [][]string
	for _, r := range runs {
		s := r.row()
		loss := strconv.FormatFloat(float64(s.Loss), 'g', 17, 64)
		if r.simulated() {
			loss = "-"
		}
		rows = append(rows, []string{
			s.Run, s.layout(), shortly(s.Balancer), loss, fmt.Sprintf("%.1f ms", 1e3*s.Before), fmt.Sprintf("%.1f ms", 1e3*s.After),
			fmt.Sprintf("%.3f", s.Bubble), fmt.Sprintf("%.3f", s.Imbalance), fmt.Sprintf("%.1f MB", float64(s.Moved)/1e6),
			fmt.Sprintf("%.2f %%", 100*s.Overhead), fmt.Sprintf("%.2fx", s.Headroom), s.Clock,
		})
	}
	if !wide {
		header, rows = without(header, rows, "imbalance", "balancing", "headroom")
	}
	if err := explained(out, header, rows, runNotes); err != nil {
		return err
	}
	return origins(out, runs)
}

// origins writes what simulated runs are simulated on, and warns if times are of different clocks.
func origins(out io.Writer, runs []Run) error {
	var text strings.Builder
	for _, r := range runs {
		if r.simulated() {
			fmt.Fprintf(&text, "%s: nothing ran, simulated on %s\n", r.label(), r.costsSource())
		}
	}
	if warning := clocksDiffer(runs); warning != "" {
		fmt.Fprintln(&text, warning)
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s", text.String())
	return err
}

// Changes writes the effect of the kinds of dynamism on the models of the runs. It writes one line
// if the effect is the same for all, else a line for each run with an effect.
func Changes(out io.Writer, runs []Run) error {
	var text strings.Builder
	var sentences []string
	for _, r := range runs {
		sentence := r.changer().sentence()
		sentences = append(sentences, sentence)
		if sentence != "" {
			fmt.Fprintf(&text, "model at the end, %s: %s\n", r.row().title(), sentence)
		}
	}
	if sentences = slices.Compact(sentences); len(sentences) == 1 && sentences[0] != "" {
		text.Reset()
		fmt.Fprintf(&text, "model at the end: %s\n", sentences[0])
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s", text.String())
	return err
}

// shortly returns a balancer's name without " by time", the usual measure.
func shortly(balancer string) string { return strings.TrimSuffix(balancer, " by time") }

// without returns a table without the columns with these names.
func without(header []string, rows [][]string, names ...string) ([]string, [][]string) {
	keep := func(row []string) []string {
		var kept []string
		for column, cell := range row {
			if !slices.Contains(names, header[column]) {
				kept = append(kept, cell)
			}
		}
		return kept
	}
	short := make([][]string, len(rows))
	for i, row := range rows {
		short[i] = keep(row)
	}
	return keep(header), short
}
