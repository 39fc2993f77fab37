package report

import (
	"embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"dynmo/src/files"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

//go:embed page.html compare.html page.css charts.js timeline.js uplot
var assets embed.FS

// asset returns the text of an embedded file.
func asset(name string) string {
	text, err := assets.ReadFile(name)
	if err != nil {
		panic("report: " + err.Error())
	}
	return string(text)
}

// page is the data of page.html. Text from the run (names, details, settings) is untrusted: the
// template escapes it. Marks that reverse the direction of writing are made visible.
type page struct {
	Run      Run
	Row      Row
	Headline string // gain of moving layers; "" if it is not known
	Remarks  []string
	Packed   string // result of packing onto fewer ranks; "" if the settings want none
	Changed  string // effect of the kinds of dynamism on the model; "" if none reports one
	State    string // a remark that the run did not complete; "" if it did
	Schedule string
	Facts    []fact
	Charts   []*chart // the first one is of the step time
	Heat     *heat
	Work     *heat   // the share of its work that each layer did
	Shares   string  // what the shares of Work are shares of
	Pieces   *pieces // pieces of a layer that replicas divide; nil: they divide none
	Times    *timelines
	TimesAre string // measured or simulated
	Move     int    // the step before the move that separates "before" and "after", or -1
	Idle     *idleTable
	Packing  bool // the run was packed
	Events   []eventRow
	Left     int        // number of events that are not listed
	Experts  [][]string // header and rows, as Phases
	Phases   [][]string // header and rows
	// PhaseNotes explain the columns of Phases.
	PhaseNotes string
	Settings   string

	Data map[string]any // drawn by the scripts
}

// mostEvents is the largest number of events on a page.
const mostEvents = 500

// HTML writes the run as one page that needs no other file.
func HTML(out io.Writer, r Run) error {
	row, packing, changes, places, marks, first := r.row(), r.packing(), r.changer(), r.places(), r.marks(), r.Metrics[0].Step
	p := page{
		Run: r, Row: row, State: files.Visible(r.state()), Schedule: r.schedules(), Settings: files.VisibleLines(r.Settings),
		Packed: r.packed(packing), Packing: packing != nil, Changed: changes.sentence(), Facts: r.facts(row), TimesAre: r.timesAre(),
		Events: r.eventRows(), Experts: r.countTable(),
	}
	p.Left = max(0, len(p.Events)-mostEvents)
	p.Events = p.Events[:len(p.Events)-p.Left]
	worth, err := r.worth()
	if err != nil {
		return err
	}
	if worth != nil {
		p.Headline = r.headline(*worth)
		for _, text := range r.remarks() {
			p.Remarks = append(p.Remarks, sentenceCase(text))
		}
	}
	phases, err := r.baselines()
	if err != nil {
		return err
	}
	if p.Pieces, err = r.pieces(); err != nil {
		return err
	}
	p.Charts = slices.Concat([]*chart{r.figure(phases, packing != nil)}, r.packingCharts(packing), r.charts(),
		[]*chart{r.frozenChart(changes.frozen), changes.work.chart(r)}, r.countCharts())
	if p.Pieces != nil {
		p.Charts = append(p.Charts, p.Pieces.load)
	}
	p.Charts = slices.DeleteFunc(p.Charts, func(c *chart) bool { return c == nil })
	for i, c := range p.Charts {
		c.Index = i
		c.thin()
	}
	if p.Heat, err = r.heat(marks, changes.frozen, places); err != nil {
		return err
	}
	p.Work, p.Shares = changes.work.view(first), changes.work.What
	p.Idle, p.Move = r.idleTable()
	p.Times = r.timelines(p.Move, places)
	if len(r.phases()) > 1 {
		header, lines, err := phaseTable([]Run{r}, "balancer", "speedup", "makespan/predicted", "to first", "clock")
		if err != nil {
			return err
		}
		p.Phases, p.PhaseNotes = append([][]string{header}, lines...), sentences(explain(header, phaseNotes))
	}
	from, to := float64(first), float64(r.last())
	to = max(to, from+max(1, 1e-9*math.Abs(from))) // differs from the first step in floating point
	p.Data = map[string]any{"charts": p.Charts, "marks": marks, "from": from, "to": to, "timelines": p.Times}
	return pages.ExecuteTemplate(out, "page.html", p)
}

// share formats x as a percentage of all.
func share(x, all float64) string {
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*x/all)
}

// bar returns the length of a bar as a percentage of all.
func bar(x, all float64) string {
	if !(x > 0) || !(all > 0) {
		return "0"
	}
	return fmt.Sprintf("%.1f%%", 100*min(x/all, 1))
}

// off formats the relative difference of a sum from the measured value.
func off(x, measured float64) string {
	switch {
	case measured == 0:
		return ""
	case math.Abs(x/measured-1) < 0.0005:
		return "= sum"
	}
	return fmt.Sprintf("sum %+.1f %%", 100*(x/measured-1))
}

// provenance splits the provenance of a run into names and values.
func provenance(p record.Provenance) []fact {
	var list []fact
	for line := range strings.Lines(p.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		list = append(list, fact{Name: name, Value: files.Visible(value)})
	}
	return list
}

// steps names the steps of a segment.
func (r Run) steps(s segment) string {
	if s.hi-s.lo == 1 {
		return fmt.Sprintf("step %d", r.Metrics[s.lo].Step)
	}
	return fmt.Sprintf("steps %d to %d", r.Metrics[s.lo].Step, r.Metrics[s.hi-1].Step)
}

// schedules names the executed schedules, in order of first use. If they were not recorded it names
// the setting.
func (r Run) schedules() string {
	var list []string
	for _, m := range r.Metrics {
		if m.Schedule != "" && !slices.Contains(list, m.Schedule) {
			list = append(list, m.Schedule)
		}
	}
	if list == nil {
		return r.Config.Schedule.Kind
	}
	return strings.Join(list, ", then ")
}

// state returns a remark if the run did not complete, "" if it did. A run of a version without
// summaries counts as complete if all its steps are recorded.
func (r Run) state() string {
	done, wanted := r.last()+1, r.Config.Train.Steps
	steps := fmt.Sprintf("%d of %d steps", done, wanted)
	if r.End == nil && done >= wanted {
		return ""
	}
	if r.End == nil {
		return "This run is unfinished: " + steps + " are recorded. It still trains, or was killed."
	}
	switch r.End.Status {
	case verdict.Stopped:
		return "This run was stopped after " + steps + "."
	case verdict.Diverged:
		return "This run diverged after " + steps + ": " + r.End.Error
	case verdict.Failed:
		return "This run failed after " + steps + ": " + r.End.Error
	}
	return ""
}

// Unfinished writes a line for each run that did not complete.
func Unfinished(out io.Writer, runs []Run) error {
	for _, r := range runs {
		if state, ok := strings.CutPrefix(r.state(), "This run "); ok {
			if _, err := fmt.Fprintf(out, "\n%s %s\n", r.label(), files.Visible(state)); err != nil {
				return err
			}
		}
	}
	return nil
}

// last returns the number of the last step.
func (r Run) last() int { return r.Metrics[len(r.Metrics)-1].Step }
