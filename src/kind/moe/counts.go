package moe

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// assigned are the assignments of tokens to the experts of a layer. Behind the values with
// names are the tokens of each expert (see Counts).
var assigned = dynamic.Counts{Name: Counts, Values: []string{"tokens", "dropped", "balance loss", "z-loss"}}

// counts returns assigned with its charts.
func counts(c config.Config) []dynamic.Counts {
	all := assigned
	all.Charts = []dynamic.Chart{{Title: "fullest expert", About: "tokens of a layer's fullest expert over those of its mean one, of a step", FromZero: true,
		Of: func(v dynamic.Values, _ dynamic.Step) float64 { return fullest(v) }}}
	if config.Of[options](c).Capacity > 0 {
		all.Charts = append(all.Charts, dynamic.Chart{Title: "dropped assignments", Unit: "%", About: "of tokens to experts whose capacity is used up", FromZero: true,
			Of: func(v dynamic.Values, _ dynamic.Step) float64 { return 100 * droppedShare(v) }})
	}
	all.Columns = columns
	return []dynamic.Counts{all}
}

// sum returns the assignments that are not dropped.
func sum(v dynamic.Values) (all float64) {
	for _, tokens := range v.Rest() {
		all += float64(tokens)
	}
	return all
}

// fullest returns the tokens of the fullest expert over those of the mean one, NaN without
// any.
func fullest(v dynamic.Values) float64 {
	if len(v.Rest()) == 0 {
		return math.NaN()
	}
	return fullness(slices.Max(v.Rest()), v)
}

// fullness returns the tokens of the fullest expert, most, over those of the mean one.
func fullness(most int64, v dynamic.Values) float64 {
	return float64(most) * float64(len(v.Rest())) / sum(v)
}

// droppedShare returns the share of the assignments that are dropped.
func droppedShare(v dynamic.Values) float64 { return v.Get("dropped") / (v.Get("dropped") + sum(v)) }

// mostExperts is how many experts of a layer a table has columns for.
const mostExperts = 32

// columns returns the share of a layer's assignments that each expert works on.
func columns(sums dynamic.Values) (head, row []string) {
	list := sums.Rest()
	for k, tokens := range list[:min(len(list), mostExperts)] {
		head, row = append(head, fmt.Sprint("expert ", k)), append(row, fmt.Sprintf("%.1f", 100*float64(tokens)/max(1, sum(sums))))
	}
	return head, row
}

// means returns the means of both over layers and steps, NaN where no expert has tokens.
func means(s dynamic.Seen) (full, drops float64) {
	n := 0.0
	for _, v := range s.Counts {
		if f := fullest(v); v.Name == assigned.Name && !math.IsNaN(f) {
			full, drops, n = full+f, drops+droppedShare(v), n+1
		}
	}
	return full / n, drops / n
}

// sentence says what the loads are.
func sentence(s dynamic.Seen) string {
	full, drops := means(s)
	if math.IsNaN(full) {
		return ""
	}
	text := "the fullest expert of a layer has " + dynamic.Significant(full) + " times the mean load"
	if drops > 0 {
		text += ", " + dynamic.Percent(drops) + " of the assignments are dropped"
	}
	return text
}

// words say what the loads were in a step.
func words(s dynamic.Seen) (list []string) {
	full, drops := means(s)
	if math.IsNaN(full) {
		return nil
	}
	list = append(list, "fullest expert: "+dynamic.Significant(full)+" times the mean")
	if config.Of[options](s.Config).Capacity > 0 {
		list = append(list, "dropped assignments: "+dynamic.Percent(drops))
	}
	return list
}

// loads reports the share of dropped assignments, with the load of the fullest expert, when that share has
// changed by a quarter since its last report. It changes nothing: a router decides within its
// layer which experts tokens go to (see Experts). While no assignment is dropped all experts of a
// layer together do the same work in every step, and there is nothing to report.
type loads struct {
	toldDropped      float64
	fullest, dropped dynamic.Mean
}

// Before tells the loads of the last steps: the mean over layers of the largest load over the
// mean one, each the mean over microbatches, and the dropped share.
func (l *loads) Before(int, dynamic.Target) (dynamic.Change, error) {
	if !dynamic.IsNews(l.toldDropped, l.dropped.Value) {
		return dynamic.Change{}, nil
	}
	l.toldDropped = l.dropped.Value
	return dynamic.Change{Kind: "moe", Costs: true, Detail: map[string]float64{"fullest": l.fullest.Value, "dropped": l.dropped.Value}}, nil
}

// tellLoads says the loads of a report.
func tellLoads(of map[string]float64) string {
	dropped := "no token was dropped"
	if share := of["dropped"]; share > 0 {
		dropped = dynamic.Percent(share) + " of the assignments were dropped"
	}
	return fmt.Sprintf("the busiest expert of a layer has %.2f times the mean load, %s", of["fullest"], dropped)
}

// After counts the tokens of all experts.
func (l *loads) After(_ int, counts []cost.CountSum) error {
	var full, drops, taken, layers float64
	for _, c := range counts {
		v := assigned.Read(c.Values)
		if c.Name != assigned.Name || v.Get("tokens") == 0 || sum(v) == 0 {
			continue
		}
		full, layers = full+fullness(c.Peaks, v), layers+1
		drops, taken = drops+v.Get("dropped"), taken+sum(v)
	}
	if layers > 0 {
		l.fullest.Add(full / layers)
		l.dropped.Add(drops / (drops + taken))
	}
	return nil
}
