package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"dynmo/src/record"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
	//go:embed page.js
	scriptText string
)

// page is the data of page.html. Text of the run (names, details, settings) is
// untrusted; the template escapes it.
type page struct {
	Run      Run
	Headline string // what moving layers was worth; "" if it is not known
	Summary  summary
	Schedule string
	Facts    []fact
	Charts   []*chart
	Heat     *heatView
	Times    *timelines
	Move     int // the step after which layers moved that before and after speak of, or -1
	Idle     *idleTable
	Events   []record.Event
	Phases   [][]string // header and rows
	Style    template.CSS
	Script   template.JS
	Data     map[string]any // drawn by the script
}

// fact is a number of the run, or a line of its provenance.
type fact struct{ Name, Value, Note string }

// phaseColumns is those of phaseHeader that do not compare with another run.
var phaseColumns = []int{0, 2, 4, 5, 6, 7, 8, 9, 11}

// mostEvents is how many events a page lists.
const mostEvents = 500

// HTML writes the run as one page that needs nothing but itself.
func HTML(out io.Writer, r Run) error {
	p := page{Run: r, Summary: r.summarise(), Schedule: r.schedules(), Move: -1,
		Style: template.CSS(styleText), Script: template.JS(scriptText)}
	p.Facts = r.facts(p.Summary)
	var err error
	if p.Headline, err = r.Headline(); err != nil {
		return err
	}
	first, last := float64(r.Metrics[0].Step), float64(r.Metrics[len(r.Metrics)-1].Step)
	last = max(last, above(first))
	marks := r.marks()
	p.Charts = r.charts()
	for _, c := range p.Charts {
		if len(c.X) > 0 {
			if err := c.draw(first, last, marks); err != nil {
				return err
			}
		}
	}
	layouts, err := r.heat()
	if err != nil {
		return err
	}
	p.Heat = layouts.view(r.Metrics[0].Step, marks)
	all := segment{0, len(r.Metrics)}
	columns, segments := []string{"whole run"}, []segment{all}
	if before, after, step, ok := r.around(); ok {
		p.Move = step
		columns = []string{"before: " + r.steps(before), "after: " + r.steps(after), "whole run"}
		segments = []segment{before, after, all}
	}
	p.Idle = r.idleTable(columns, segments)
	p.Times = r.timelines(p.Move)
	p.Events = r.Events[:min(len(r.Events), mostEvents)]
	if len(r.phases()) > 1 {
		rows, err := phaseRows([]Run{r})
		if err != nil {
			return err
		}
		for _, row := range append([][]string{phaseHeader}, rows...) {
			var kept []string
			for _, column := range phaseColumns {
				kept = append(kept, row[column])
			}
			p.Phases = append(p.Phases, kept)
		}
	}
	p.Data = map[string]any{"charts": p.Charts, "from": first, "to": last, "timelines": p.Times}
	return pageTemplate.Execute(out, p)
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"ms": milliseconds[float64], "msOf": milliseconds[record.Float], "share": share, "bar": bar, "off": off, "detail": detail, "facts": provenance,
}).Parse(pageText))

// milliseconds writes seconds with four digits; nothing where nothing was
// measured.
func milliseconds[F ~float64](seconds F) string {
	if ms := 1e3 * float64(seconds); ms >= 1000 {
		return fmt.Sprintf("%.0f", ms)
	} else if ms != 0 {
		return fmt.Sprintf("%.4g", ms)
	}
	return ""
}

// share writes x of all as a percentage.
func share(x, all float64) string {
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*x/all)
}

// bar is the length of a bar.
func bar(x, all float64) string {
	if !(x > 0) || !(all > 0) {
		return "0"
	}
	return fmt.Sprintf("%.1f%%", 100*min(x/all, 1))
}

// off writes the distance of x from the measured value.
func off(x, measured float64) string {
	if measured == 0 {
		return ""
	}
	return fmt.Sprintf("sum is %+.1f %%", 100*(x/measured-1))
}

// detail writes the figures of one kind of event.
func detail(of map[string]any) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if x, ok := of[key].(float64); ok && x != math.Trunc(x) {
			list = append(list, fmt.Sprintf("%s %.5g", key, x))
		} else if ok {
			list = append(list, fmt.Sprintf("%s %.0f", key, x))
		} else {
			list = append(list, fmt.Sprintf("%s %v", key, of[key]))
		}
	}
	return strings.Join(list, ", ")
}

// provenance splits the provenance of a run into names and values.
func provenance(p record.Provenance) []fact {
	var list []fact
	for line := range strings.Lines(p.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		list = append(list, fact{Name: name, Value: value})
	}
	return list
}

// steps names a segment.
func (r Run) steps(s segment) string {
	if s.hi-s.lo == 1 {
		return fmt.Sprintf("step %d", r.Metrics[s.lo].Step)
	}
	return fmt.Sprintf("steps %d to %d", r.Metrics[s.lo].Step, r.Metrics[s.hi-1].Step)
}

// schedules names the executed schedules, in order of first use; the setting,
// where they were not recorded.
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

// facts returns the outcome of the run.
func (r Run) facts(s summary) []fact {
	phases := r.phases()
	bubble := middle(phases[0].steps, func(m record.Metrics) record.Float { return m.BubbleRatio })
	clock := s.Clock + " clock"
	list := []fact{{"final loss", fmt.Sprintf("%.5g", s.Loss), fmt.Sprintf("nats per token; %v", s.Loss)}}
	if len(phases) > 1 {
		list = append(list,
			fact{"step time", milliseconds(s.Before) + " → " + milliseconds(s.After) + " ms", "before the first change of the model → after the last; medians, " + clock},
			fact{"bubble ratio", fmt.Sprintf("%.3f → %.3f", bubble, s.Bubble), "idle share of the stages' time in the pipeline, likewise"})
	} else {
		list = append(list,
			fact{"step time", milliseconds(s.After) + " ms", "median of the second half, " + clock},
			fact{"bubble ratio", fmt.Sprintf("%.3f", s.Bubble), "idle share of the stages' time in the pipeline, likewise"})
	}
	return append(list,
		fact{"ceiling", fmt.Sprintf("%.2f×", s.Ceiling), "what better cuts than the last could still gain"},
		fact{"moved", fmt.Sprintf("%.1f MB", float64(s.Moved)/1e6), "layers sent between ranks"},
		fact{"balancing", fmt.Sprintf("%.2f %%", 100*s.Overhead), "measuring, deciding and moving, of all time on the " + clock},
		fact{"steps", fmt.Sprint(len(r.Metrics)), r.skipped()})
}

// skipped says how many updates were left out.
func (r Run) skipped() string {
	n := 0
	for _, m := range r.Metrics {
		if m.Skipped {
			n++
		}
	}
	return fmt.Sprintf("%d of them without an update", n)
}

// charts returns the numbers that are drawn over steps.
func (r Run) charts() []*chart {
	list := []*chart{}
	for _, c := range []struct {
		title, unit string
		fromZero    bool
		of          func(record.Metrics) record.Float
	}{
		{"loss", "nats per token", false, func(m record.Metrics) record.Float { return m.Loss }},
		{"throughput", "tokens/s, " + r.Metrics[0].Clock + " clock", true, func(m record.Metrics) record.Float { return m.TokensPerSecond }},
		{"bubble ratio", "idle share of the pipeline", true, func(m record.Metrics) record.Float { return m.BubbleRatio }},
		{"imbalance", "(max − min) / mean of the stages' work", true, func(m record.Metrics) record.Float { return m.Imbalance }},
	} {
		x, y := make([]float64, len(r.Metrics)), make([]float64, len(r.Metrics))
		for i, m := range r.Metrics {
			x[i], y[i] = float64(m.Step), float64(c.of(m))
		}
		n := &chart{Title: c.title, Unit: c.unit, FromZero: c.fromZero}
		n.thin(x, y)
		list = append(list, n)
	}
	return list
}
