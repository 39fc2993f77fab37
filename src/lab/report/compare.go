package report

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/files"
	"dynmo/src/record"
)

// mostCompared is the largest number of runs on a page: it has as many colours for curves.
const mostCompared = 8

// comparison is the data of compare.html.
type comparison struct {
	Verdicts []string // one for each group of runs that did the same work
	Warning  string   // why times should not be compared; "": no reason
	Runs     []comparedRun
	Header   []string // of the cells of the runs
	Notes    string   // on Header
	Charts   []*chart
	Differ   [][]string // header, and a row for each setting that differs
	Silent   bool       // a setting has no effect in a run
	Data     map[string]any
}

// comparedRun is a run on the page.
type comparedRun struct {
	Name, Style, Dir string
	Notes            []string
	State            string // a remark that the run did not complete; "" if it did
	Cells            []string
	Verdict          []string // gain of moving layers, with remarks; empty if it is not known
}

// Compare writes several runs as one page that needs no other file: their curves in shared charts, a table
// of results, and the settings in which they differ.
func Compare(out io.Writer, runs []Run) error {
	if len(runs) > mostCompared {
		return fmt.Errorf("%d runs: a page shows at most %d, dynmo table takes more", len(runs), mostCompared)
	}
	runs = slices.Clone(runs)
	for i, r := range runs {
		if k := slices.IndexFunc(runs[:i], func(o Run) bool { return filepath.Clean(o.Dir) == filepath.Clean(r.Dir) }); k >= 0 {
			return fmt.Errorf("%s: given twice", r.Dir)
		}
	}
	for i, name := range distinctNames(runs) {
		runs[i].Label = name
	}
	worths, err := Weigh(runs)
	if err != nil {
		return err
	}
	p := comparison{Warning: clocksDiffer(runs), Charts: overlaid(runs), Differ: differences(runs)}
	several := worths // the verdict of a run alone stands beside the run
	several.groups = slices.DeleteFunc(slices.Clone(worths.groups), func(g group) bool { return len(g.runs) < 2 })
	if p.Verdicts = several.Verdicts(); len(p.Verdicts) == 1 { // of several, each begins with the name of a run
		p.Verdicts[0] = sentenceCase(strings.TrimSuffix(p.Verdicts[0], "."))
	}
	p.Silent = slices.ContainsFunc(p.Differ, func(row []string) bool { return slices.Contains(row, noEffect) })
	header, rows := results(runs, worths)
	p.Header, p.Notes = header[1:], sentences(explain(header, slices.Concat(runNotes, worthNotes)))
	first, last := runs[0].Metrics[0].Step, runs[0].last()
	for i, r := range runs {
		first, last = min(first, r.Metrics[0].Step), max(last, r.last())
		c := comparedRun{Name: r.label(), Style: runStyle(i), Dir: files.Visible(r.Dir), Notes: r.Notes, State: files.Visible(r.state()), Cells: rows[i][1:]}
		if w := worths.of[i]; w != nil {
			for _, text := range append([]string{r.headline(*w)}, r.remarks()...) {
				c.Verdict = append(c.Verdict, sentenceCase(text))
			}
		}
		p.Runs = append(p.Runs, c)
	}
	for i, c := range p.Charts {
		c.Index = i
		c.thin()
	}
	p.Data = map[string]any{"charts": p.Charts, "marks": []mark{}, "from": first, "to": max(last, first+1)}
	return pages.ExecuteTemplate(out, "compare.html", p)
}

// runStyle names the colour of a run's curves.
func runStyle(i int) string { return fmt.Sprintf("layer%d", i) }

// distinctNames returns a name for each run: run.name, the name of the directory or its path, the first that
// tells all runs apart.
func distinctNames(runs []Run) (names []string) {
	for _, name := range []func(Run) string{
		func(r Run) string { return r.Config.Run.Name }, func(r Run) string { return filepath.Base(r.Dir) }, func(r Run) string { return filepath.Clean(r.Dir) },
	} {
		names = nil
		for _, r := range runs {
			names = append(names, name(r))
		}
		if len(slices.Compact(slices.Sorted(slices.Values(names)))) == len(names) {
			break
		}
	}
	return names
}

// clocksDiffer warns if times are of different clocks.
func clocksDiffer(runs []Run) string {
	var list []string
	same := true
	for _, r := range runs {
		list = append(list, fmt.Sprintf("%s %s", r.label(), r.Metrics[0].Clock))
		same = same && r.Metrics[0].Clock == runs[0].Metrics[0].Clock
	}
	if same {
		return ""
	}
	return "Times are of different clocks and should not be compared: " + strings.Join(list, ", ") + "."
}

// overlaid returns charts with a curve for each run.
func overlaid(runs []Run) (list []*chart) {
	numbers := make(map[int]bool)
	for _, r := range runs {
		for _, m := range r.Metrics {
			numbers[m.Step] = true
		}
	}
	steps := slices.Sorted(maps.Keys(numbers))
	draw := func(title, unit, about string, of func(record.Metrics) record.Float) *chart {
		c := &chart{Title: title, Unit: unit, About: about, Steps: steps, FromZero: true}
		for i, r := range runs {
			y := gaps(len(steps))
			for _, m := range r.Metrics {
				k, _ := slices.BinarySearch(steps, m.Step)
				y[k] = of(m)
			}
			c.Curves = append(c.Curves, curve{Name: r.label(), Style: runStyle(i), Y: y})
		}
		list = append(list, c)
		return c
	}
	hasAny := func(has func(record.Metrics) bool) bool {
		return slices.ContainsFunc(runs, func(r Run) bool { return slices.ContainsFunc(r.Metrics, has) })
	}
	unit, scale, typical := "ms", record.Float(1e3), record.Float(0)
	for _, r := range runs {
		typical = max(typical, r.middle(r.whole(), stepSeconds))
	}
	if typical >= 10 {
		unit, scale = "s", 1
	}
	c := draw("step time", unit, "from the first forward to the last update", func(m record.Metrics) record.Float { return scale * m.StepSeconds })
	c.Top = float64(3 * scale * typical)
	c.crop()
	if hasAny(func(m record.Metrics) bool { return finite(m.Loss) && !m.Replayed }) {
		draw("loss", "nats per token", "", func(m record.Metrics) record.Float { return m.Loss }).FromZero = false
	}
	if hasAny(record.Metrics.Validated) {
		c := draw("validation loss", "nats per token", "of data that nothing was trained on", func(m record.Metrics) record.Float {
			if !m.Validated() {
				return record.Float(math.NaN())
			}
			return m.ValidationLoss
		})
		c.FromZero = false
		for i := range c.Curves {
			c.Curves[i].Sparse = true
		}
	}
	draw("throughput", "tokens/s", "", func(m record.Metrics) record.Float { return m.TokensPerSecond })
	draw(bubbles.title, "%", bubbles.about, bubbles.of)
	draw(imbalances.title, "%", imbalances.about, imbalances.of)
	if hasAny(func(m record.Metrics) bool { return m.Sparsity > 0 }) {
		c := draw(sparsities.title, "%", sparsities.about, sparsities.of)
		for i := range c.Curves {
			c.Curves[i].Held = true
		}
	}
	return list
}

// noEffect is shown for a setting that has no effect in a run.
const noEffect = "–"

// results returns a table of the results of runs.
func results(runs []Run, worths Worths) (header []string, rows [][]string) {
	for i, r := range runs {
		s := r.row()
		loss, speedup, within, ceiling := fmt.Sprintf("%.5g", s.Loss), "-", "-", "-"
		if !finite(s.Loss) || r.Config.Dynamic.Replay != "" || r.simulated() {
			loss = "-"
		}
		if w := worths.of[i]; w != nil && w.Doubt == "" {
			speedup, within, ceiling = fmt.Sprintf("%.2fx", w.Speedup), spread(*w), fmt.Sprintf("%.2fx", w.Ceiling)
		}
		rows = append(rows, []string{
			s.Run, s.layout(), shortly(s.Balancer), fmt.Sprint(len(r.Metrics)), loss, milliseconds(s.Before) + " ms", milliseconds(s.After) + " ms", s.Clock,
			share(float64(s.Bubble), 1), share(float64(s.Overhead), 1), record.Bytes(s.Moved), speedup, within, ceiling,
		})
	}
	return []string{"run", "layout", "balancer", "steps", "loss", "before", "after", "clock", "bubble", "balancing", "moved", "speedup", intervalColumn, "ceiling"}, rows
}

// differences returns a table of what differs between runs: settings, and the provenance but for the date and
// the command line.
func differences(runs []Run) (table [][]string) {
	header, configs := []string{"setting"}, make([]config.Config, len(runs))
	for i, r := range runs {
		header, configs[i] = append(header, r.label()), r.Config
	}
	for _, d := range config.Differences(configs) {
		row := []string{d.Name}
		for _, value := range d.Values {
			row = append(row, files.Visible(cmp.Or(value, noEffect)))
		}
		table = append(table, row)
	}
	var names []string
	values := make([]map[string]string, len(runs))
	for i, r := range runs {
		values[i] = make(map[string]string)
		if r.Provenance == nil {
			continue
		}
		for _, f := range provenance(*r.Provenance) {
			if !slices.Contains(names, f.Name) && f.Name != "date" && f.Name != "command" {
				names = append(names, f.Name)
			}
			values[i][f.Name] = f.Value
		}
	}
	for _, name := range names {
		row, differ := []string{name}, false
		for i := range runs {
			differ = differ || values[i][name] != values[0][name]
			row = append(row, cmp.Or(values[i][name], "?"))
		}
		if differ {
			table = append(table, row)
		}
	}
	if table == nil {
		return nil
	}
	return append([][]string{header}, table...)
}

// pages holds the templates of both pages.
var pages = template.Must(template.New("pages").Funcs(template.FuncMap{
	"ms": milliseconds[float64], "share": share, "bar": bar, "off": off, "facts": provenance, "asset": asset,
	"css": func(name string) template.CSS { return template.CSS(asset(name)) },
	"js":  func(name string) template.JS { return template.JS(asset(name)) },
}).ParseFS(assets, "*.html"))
