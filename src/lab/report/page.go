package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"dynmo/src/files"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
	//go:embed charts.js
	chartText string
	//go:embed timeline.js
	timelineText string
	//go:embed uplot/uPlot.iife.min.js
	uplotText string
	//go:embed uplot/uPlot.min.css
	uplotStyle string
	//go:embed uplot/LICENSE
	uplotLicense string
)

// page is the data of page.html. Text from the run (names, details, settings) is untrusted: the
// template escapes it. Marks that reverse the direction of writing are made visible.
type page struct {
	Run                        Run
	Headline                   string // gain of moving layers; "" if it is not known
	Remarks                    []string
	Packed                     string // result of packing onto fewer ranks; "" if the settings want none
	Changed                    string // effect of the kinds of dynamism on the model; "" if none reports one
	Summary                    summary
	State                      string // a remark that the run did not complete; "" if it did
	Schedule                   string
	Facts                      []fact
	Charts                     []*chart // the first one is of the step time
	Heat                       *heatView
	Work                       *heatView // the share of its work that each layer did
	Shares                     string    // what the shares of Work are shares of
	Pieces                     *pieces   // pieces of a layer that replicas divide; nil: they divide none
	Times                      *timelines
	Move                       int // the step before the move that separates "before" and "after", or -1
	Idle                       *idleTable
	Packing                    [][]string // packings and releases: header and rows
	Events                     []eventRow
	Left                       int        // number of events that are not listed
	Experts                    [][]string // header and rows, as Phases
	Phases                     [][]string // header and rows
	Settings                   string
	Style                      template.CSS
	UPlot, ChartScript, Script template.JS

	Data map[string]any // drawn by the scripts
}

// mostEvents is the largest number of events on a page.
const mostEvents = 500

// HTML writes the run as one page that needs no other file.
func HTML(out io.Writer, r Run) error {
	p := page{Run: r, Summary: r.summarise(), State: r.state(), Schedule: r.schedules(), Move: -1,
		Style: template.CSS(uplotStyle + styleText), UPlot: template.JS("/*\n" + uplotLicense + "*/\n" + uplotText),
		ChartScript: template.JS(chartText), Script: template.JS(timelineText)}
	p.Summary.Name, p.State, p.Settings = files.Visible(p.Summary.Name), files.Visible(p.State), files.VisibleLines(r.Settings)
	phases, err := r.baselines()
	if err != nil {
		return err
	}
	worth, err := r.worth()
	if err != nil {
		return err
	}
	packing := r.packing()
	if worth != nil {
		p.Headline = Headline(*worth, packing != nil)
		if p.Remarks, err = r.remarks(); err != nil {
			return err
		}
	}
	p.Packed, p.Packing = r.packed(packing), r.packingTable(packing)
	changes := r.changer()
	p.Changed, p.Facts = changes.sentence(), append(packingFacts(packing), r.facts(p.Summary, worth)...)
	first, last := float64(r.Metrics[0].Step), float64(r.Metrics[len(r.Metrics)-1].Step)
	last = max(last, first+max(1, 1e-9*math.Abs(first))) // differs from first in floating point
	marks := r.marks()
	cold, did := changes.frozen, changes.work
	p.Charts = slices.Concat([]*chart{r.figure(phases, packing != nil)}, r.packingCharts(packing), r.charts())
	if c := r.frozenChart(cold); c != nil {
		p.Charts = append(p.Charts, c)
	}
	if did != nil {
		p.Charts = append(p.Charts, did.chart(r))
	}
	p.Charts = append(p.Charts, r.countCharts()...)
	if p.Pieces, err = r.pieces(); err != nil {
		return err
	}
	if p.Pieces != nil {
		p.Charts = append(p.Charts, p.Pieces.load)
		p.Pieces.view(r.Metrics[0].Step)
	}
	for i, c := range p.Charts {
		c.Index = i
		c.thin()
	}
	layouts, err := r.heat()
	if err != nil {
		return err
	}
	p.Heat = layouts.view(r.Metrics[0].Step, marks, cold)
	places := r.places()
	places.locate(p.Heat, r.Metrics)
	if did != nil {
		p.Work, p.Shares = did.view(r.Metrics[0].Step), did.What
	}
	all := segment{0, len(r.Metrics)}
	columns, segments := []string{"whole run"}, []segment{all}
	if before, after, step, ok := r.bestMove(); ok {
		p.Move = step
		columns = []string{"before: " + r.steps(before), "after: " + r.steps(after), "whole run"}
		segments = []segment{before, after, all}
	}
	p.Idle = r.idleTable(columns, segments)
	p.Times = r.timelines(p.Move, places)
	p.Events = r.eventRows()
	p.Left = max(0, len(p.Events)-mostEvents)
	p.Events = p.Events[:len(p.Events)-p.Left]
	p.Experts = r.countTable()
	if p.Phases, err = r.phaseTable(); err != nil {
		return err
	}
	p.Data = map[string]any{"charts": p.Charts, "marks": marks, "from": first, "to": last, "timelines": p.Times}
	return pageTemplate.Execute(out, p)
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"ms": milliseconds[float64], "share": share, "bar": bar, "off": off, "facts": provenance,
}).Parse(pageText))

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
