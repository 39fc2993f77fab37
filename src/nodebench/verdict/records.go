package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// Completed returns the rows in the records of one process. If its last check has no end, a row
// says that the process died in that check.
func Completed(records []Row) []Row {
	var rows []Row
	for _, r := range records {
		if r.Status != Begun && r.Status != Ended {
			rows = append(rows, r)
		}
	}
	if len(records) == 0 {
		return nil
	}
	if last := records[len(records)-1]; last.Status != Ended && last.Status != TimedOut {
		i := len(records) - 1
		for i > 0 && records[i].Status != Begun {
			i--
		}
		r := records[i]
		r.Value, r.Unit, r.Digest = 0, "", ""
		r.Status, r.Note = died, "the process died in this check, or after it"
		if last.Status == Begun {
			r.Note = "the process died in this check"
		}
		rows = append(rows, r)
	}
	return rows
}

// Compare describes the differences between two outputs: values that changed by more than a tenth,
// and changed verdicts. It says so if no row is in both. Both outputs have one row for each node, device and check.
func Compare(old, now []Finding) string {
	before := map[string]Finding{}
	for _, f := range old {
		before[f.Name()] = f
	}
	type change struct {
		line string
		part float64
	}
	const least = 0.1
	var changes []change
	compared := false
	for _, f := range now {
		o, known := before[f.Name()]
		switch {
		case !known:
		case o.comparable() && f.comparable() && o.Clock == f.Clock:
			compared = true
			if part := f.speed()/o.speed() - 1; part < -least || part > least {
				changes = append(changes, change{fmt.Sprintf("%s: %.4g to %.4g %s (%+.0f %% speed)", f.Name(), o.Value, f.Value, f.Unit, 100*part), part})
			}
		case o.State <= healthy && f.State > healthy:
			changes = append(changes, change{fmt.Sprintf("%s: %s now: %s", f.Name(), f.State, f.Reason), -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return int(1e6 * (a.part - b.part)) })
	var text strings.Builder
	for _, c := range changes {
		fmt.Fprintln(&text, "changed:", c.line)
	}
	switch {
	case len(changes) > 0:
	case !compared:
		text.WriteString("nothing to compare: no node, device and check has a value in both outputs\n")
	default:
		text.WriteString("nothing has changed by more than 10 %\n")
	}
	return text.String()
}

// Again merges the rows of two measurements of the same devices. Each device gets its better value,
// because the slower one may have been disturbed. Wrong elements of both are added. A check that
// found a fault or did not end in the second measurement keeps that row. A second measurement on a busy
// host counts for nothing beside a first one that was not.
//
// A process that died in the first measurement may have been killed because another node failed. So a
// node whose processes all ended in the second measurement has not died, and has the rows of both.
func Again(first, second []Row) []Row {
	seconds, ended := map[string]Row{}, map[string]bool{}
	for _, r := range second {
		before, known := ended[r.Node]
		ended[r.Node] = r.Status != died && (before || !known)
		seconds[r.Name()] = r
	}
	revived := map[string]bool{}
	merged := slices.DeleteFunc(slices.Clone(first), func(r Row) bool {
		revives := r.Status == died && ended[r.Node]
		revived[r.Node] = revived[r.Node] || revives
		return revives
	})
	names := map[string]bool{}
	for i, r := range merged {
		names[r.Name()] = true
		again, measured := seconds[r.Name()]
		switch {
		case !measured || again.Status == Busy && again.Wrong == 0 && r.Status != Busy:
		case !r.comparable() || !again.comparable():
			again.Wrong += r.Wrong
			merged[i] = again
		case again.speed() > r.speed():
			merged[i] = again
		}
	}
	for _, r := range second {
		if revived[r.Node] && !names[r.Name()] {
			merged = append(merged, r)
		}
	}
	return merged
}
