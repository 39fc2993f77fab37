package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is the word for the verdict on all nodes together.
type Outcome string

// Outcomes. onlyMeasured says that every result was right and no device reports a
// fault, but that there was nothing to compare speeds with.
const (
	allHealthy   Outcome = "healthy"
	onlyMeasured Outcome = "measured"
	slowOrFaulty Outcome = "slow or faulty"
	notMeasured  Outcome = "not measured"
	CannotJudge  Outcome = "cannot judge"
)

// outcomes has every outcome with its exit status, in the order of the statuses. Status 2 is a wrong
// command line.
var outcomes = []struct {
	outcome Outcome
	status  int
}{{allHealthy, 0}, {onlyMeasured, 0}, {slowOrFaulty, 1}, {notMeasured, 3}, {CannotJudge, 4}}

// Status returns the exit status of an outcome.
func (o Outcome) Status() int {
	for _, known := range outcomes {
		if known.outcome == o {
			return known.status
		}
	}
	panic("verdict: an outcome without a status")
}

// Summary is the verdict on all nodes together, and how it came about.
type Summary struct {
	Verdict    Outcome   `json:"verdict"`
	Status     int       `json:"exit_status"`
	Line       string    `json:"line"`          // the verdict in one sentence
	Bench      string    `json:"bench"`         // "node" or "pairs"
	Measured   time.Time `json:"date,omitzero"` // zero if there are no records
	Version    string    `json:"version"`
	Command    string    `json:"command"`
	Thresholds []string  `json:"thresholds"` // sentences
}

// Summarise returns the summary of findings. reference is the one that they were judged by; nil if
// there is none.
func Summarise(findings []Finding, reference *Reference) Summary {
	s := Summary{Thresholds: thresholds(reference)}
	nodes, bad, disturbed := map[string]bool{}, Bad(findings), BusyNodes(findings)
	for _, f := range findings {
		if f.Device != "switch" && f.Node != "all" {
			nodes[f.Node] = true
		}
	}
	has := func(what func(Finding) bool) bool { return slices.ContainsFunc(findings, what) }
	switch {
	case len(findings) > 0 && !has(func(f Finding) bool { return !f.isAbsent() }):
		s.Verdict, s.Line = notMeasured, fmt.Sprintf("No node answered (%s): dynmo did not start on any, so look at the errors of its start", some(bad))
	case len(bad) > 0:
		s.Verdict, s.Line = slowOrFaulty, fmt.Sprintf("%d of %d nodes slow or faulty: %s", len(bad), len(nodes), strings.Join(bad, ", "))
	case len(disturbed) > 0:
		s.Verdict, s.Line = CannotJudge, busyLine(findings)
	case has(Finding.misfits):
		s.Verdict, s.Line = CannotJudge, "Not judged: "+misfit(findings)
	case !has(func(f Finding) bool { return f.isRate() && f.Status == Measured }):
		s.Verdict, s.Line = notMeasured, fmt.Sprintf("%s, none measured%s", count(len(nodes), "node"), whyNotMeasured(findings))
	case has(func(f Finding) bool { return f.isRate() && f.State == healthy }):
		s.Verdict, s.Line = allHealthy, fmt.Sprintf("%s, none slow or faulty", count(len(nodes), "node"))
	case reference != nil:
		s.Verdict, s.Line = CannotJudge, "Nothing was judged: the reference has no line for "+reference.lacking(findings)
	case has(func(f Finding) bool { return f.Small }):
		s.Verdict, s.Line = onlyMeasured, "Nothing was judged: the rates of --small mean nothing"
	default:
		s.Verdict, s.Line = onlyMeasured, fmt.Sprintf("Nothing was judged: give --reference, or measure %d nodes", fewestPeers)
	}
	s.Status = s.Verdict.Status()
	return s
}

// whyNotMeasured returns the first reason for which no rate was measured, behind a colon; "" if none is known.
func whyNotMeasured(findings []Finding) string {
	for _, f := range findings {
		if f.Check == "rates" && f.Reason != "" {
			return ": " + f.Reason
		}
	}
	return ""
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// BusyNodes returns the names of the busy hosts that keep a check from being judged.
func BusyNodes(findings []Finding) []string {
	var names []string
	for _, f := range findings {
		if f.State != busy || f.Sweep != nil {
			continue
		}
		for _, host := range f.busyHosts() {
			if !slices.Contains(names, host) {
				names = append(names, host)
			}
		}
	}
	return names
}

// busyHosts returns the busy hosts of a busy row: the node of the row, unless it is about several nodes.
func (r Row) busyHosts() []string {
	if r.Hosts != nil {
		return r.Hosts
	}
	return []string{r.Node}
}

// SetBusy makes a row about several nodes busy. Each text has a host, a colon, and what others took there.
func (r *Row) SetBusy(texts []string) {
	r.Status, r.Note, r.Hosts = Busy, strings.Join(texts, "; "), nil
	for _, text := range texts {
		host, _, _ := strings.Cut(text, ": ")
		r.Hosts = append(r.Hosts, host)
	}
}

// busyLine says in one line which nodes could not be judged; "" if there are none.
func busyLine(findings []Finding) string {
	names := BusyNodes(findings)
	if len(names) == 0 {
		return ""
	}
	return "Not judged, because hosts were busy: " + strings.Join(names, ", ")
}

// misfits reports whether the reference has a bound for the finding's device and check that cannot be applied.
func (f Finding) misfits() bool {
	return f.isRate() && f.Status == Measured && f.State == unjudged && f.Reason != ""
}

// misfit describes the first finding whose bound cannot be applied.
func misfit(findings []Finding) string {
	for _, f := range findings {
		if f.misfits() {
			return fmt.Sprintf("%s: %s", f.Name(), f.Reason)
		}
	}
	panic("verdict: no misfit")
}

// lacking names the first model with a rate, in quotes.
func (r *Reference) lacking(findings []Finding) string {
	for _, f := range findings {
		if f.isRate() && f.Status == Measured {
			return fmt.Sprintf("%q", f.Model)
		}
	}
	return "these devices"
}

// thresholds returns when a device is slow, as sentences.
func thresholds(reference *Reference) []string {
	list := []string{
		fmt.Sprintf("From %d nodes on, devices of one product are compared. One is slow if it is %g spreads below the median, and at least %g %% (files: %g %%).",
			fewestPeers, outlier, 100*slowBy, 100*slowFilesBy),
	}
	if reference != nil {
		list = append(list, fmt.Sprintf("A device is slow if it does not reach its bound in the reference %s, which has %s.", reference.path, count(len(reference.Bounds), "bound")))
	}
	return list
}
