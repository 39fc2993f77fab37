package verdict

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"dynmo/src/trace"
)

// group is the findings of one check on devices of one model.
type group struct {
	Device, Check, Model, Unit string
	State                      State // the worst
	Count                      int
	Values                     int // findings with a value; disturbed ones count if there are no others
	Median, Worst              float64
	Low, High                  float64 // quartiles of the rounds of the worst device; 0 without rounds
	At                         string  // node and device with the worst value
}

// grouped returns the findings that something was found in by check, in the order of the findings. The
// messages of a sweep have a table of their own.
func grouped(findings []Finding) []group {
	var order [][3]string
	members := map[[3]string][]Finding{}
	for _, f := range findings {
		if f.State == unjudged && f.Status != Measured || f.Sweep != nil && f.State <= healthy {
			continue
		}
		key := [3]string{f.class(), f.Check, f.Model}
		if members[key] == nil {
			order = append(order, key)
		}
		members[key] = append(members[key], f)
	}
	var groups []group
	for _, key := range order {
		groups = append(groups, newGroup(key, members[key]))
	}
	return groups
}

func newGroup(key [3]string, list []Finding) group {
	g := group{Device: key[0], Check: key[1], Model: key[2], Count: len(list)}
	var values []float64
	var worst *Finding
	calm := slices.ContainsFunc(list, func(f Finding) bool { return f.hasValue() && f.State != busy })
	for i, f := range list {
		if f.State > healthy && f.State > g.State || g.State <= healthy && f.State == busy || g.State == unjudged {
			g.State = f.State
		}
		if !f.hasValue() || calm && f.State == busy {
			continue
		}
		values = append(values, f.Value)
		if worst == nil || f.direction() != 0 && f.speed() < worst.speed() || f.direction() == 0 && f.Value > worst.Value {
			worst = &list[i]
		}
	}
	if worst != nil {
		g.Unit, g.Values, g.Median, g.Worst = worst.Unit, len(values), trace.Median(values), worst.Value
		g.Low, g.High, g.At = worst.Low, worst.High, worst.Node+" "+worst.Device
	}
	return g
}

// hasValue reports whether the finding has a value that was measured, disturbed or not.
func (f Finding) hasValue() bool {
	return (f.Status == Measured || f.Status == Busy) && f.Unit != "" && f.Wrong == 0
}

// Cells returns median, worst value, quartiles, unit and place of the worst value, as text.
func (g group) Cells() []string {
	if g.Values == 0 {
		return []string{"-", "-", "-", "-", "-"}
	}
	return []string{fmt.Sprintf("%.4g", g.Median), fmt.Sprintf("%.4g", g.Worst), quartiles(g.Low, g.High), g.Unit, g.At}
}

// quartiles returns the quartiles of rounds as text; "-" without rounds.
func quartiles(low, high float64) string {
	if high == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g to %.4g", low, high)
}

// class is the kind of a device, without its number or its place on the PCI bus.
func (r Row) class() string {
	kind, _, _ := strings.Cut(r.Device, " ")
	return strings.TrimRight(kind, "0123456789")
}

// Text writes findings as text. First come the findings that are bad or could not be judged, the worst
// on top. Then follows a line for each check, with the median and the worst value. The sweep over lengths
// of messages, the checks that could not be made, and the summary end it.
func Text(w io.Writer, findings []Finding, s Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if doubted := doubtedFirst(findings); len(doubted) > 0 {
		fmt.Fprintln(t, "verdict\tnode\tdevice\tcheck\tvalue\treason")
		for _, f := range doubted {
			value := "-"
			if f.hasValue() {
				value = fmt.Sprintf("%.4g %s", f.Value, f.Unit)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.State, f.Node, f.Device, f.Check, value, f.Reason)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(t, "verdict\tdevice\tcheck\tdevices\tmedian\tworst\tquartiles\tunit\tworst at\tmodel")
	for _, g := range grouped(findings) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", g.State, g.Device, g.Check, g.Count, strings.Join(g.Cells(), "\t"), cmp.Or(g.Model, "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if sweep := sweepTable(findings); sweep != nil {
		fmt.Fprintln(w)
		for _, cells := range sweep {
			fmt.Fprintln(t, strings.Join(cells, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	notes := map[string][]string{}
	var order []string
	for _, f := range findings {
		if f.State == unjudged && f.Reason != "" {
			note := f.class() + " " + f.Check + ": " + f.Reason
			if notes[note] == nil {
				order = append(order, note)
			}
			notes[note] = append(notes[note], f.Node)
		}
	}
	for _, note := range order {
		nodes := slices.Compact(slices.Sorted(slices.Values(notes[note])))
		fmt.Fprintf(w, "note: %s (%s)\n", note, some(nodes))
	}
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Clock == Virtual }) {
		fmt.Fprintln(w, "clock: virtual, the CPU time of one thread")
	}
	fmt.Fprintln(w)
	if line := busyLine(findings); line != "" && line != s.Line {
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprintf(w, "%s\nverdict: %s (status %d)\n", s.Line, s.Verdict, s.Status)
	return err
}

// sweepTable returns the sweep over lengths of messages as nccl-tests print it, with a header; nil if
// nothing was swept.
func sweepTable(findings []Finding) [][]string {
	var table [][]string
	for _, f := range findings {
		if f.Sweep == nil || f.Status == NotAvailable {
			continue
		}
		if table == nil {
			table = [][]string{{"verdict", "collective", "ranks", "bytes", "us", "quartiles", "algbw GB/s", "busbw GB/s", "wrong", "model"}}
		}
		name := f.Check[:max(0, strings.LastIndex(f.Check, "_"))] // without the length
		table = append(table, []string{f.State.String(), name, fmt.Sprint(f.Ranks), fmt.Sprint(f.Bytes), fmt.Sprintf("%.4g", f.Value), quartiles(f.Low, f.High),
			fmt.Sprintf("%.4g", f.Algorithm), fmt.Sprintf("%.4g", f.Bus), fmt.Sprint(f.Wrong), cmp.Or(f.Model, "-")})
	}
	return table
}

// doubtedFirst returns the findings that are bad or could not be judged, the worst first.
func doubtedFirst(findings []Finding) []Finding {
	list := worstFirst(findings)
	for _, f := range findings {
		if f.State == busy && f.Sweep == nil {
			list = append(list, f)
		}
	}
	return list
}

// some returns the first names, and the number of the others.
func some(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Reason returns why a node is slow or faulty or could not be judged, in one line; "" if it is fine.
func Reason(findings []Finding, node string) string {
	var reasons []string
	for _, f := range doubtedFirst(findings) {
		if f.Node == node || f.State == busy && slices.Contains(f.Hosts, node) {
			reasons = append(reasons, f.cause())
		}
	}
	return strings.Join(reasons, "; ")
}

// cause returns the check and the reason, which come first because sinfo -R shows 20 characters of them. The
// device follows, unless it is the host.
func (f Finding) cause() string {
	text := f.Check + ": " + f.Reason
	if f.State == slow {
		text = f.Check + " " + f.Reason
	}
	if f.Device != "host" && f.Device != "node" && f.Device != "net" {
		text += " (" + f.Device + ")"
	}
	return text
}
