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
	Count                      int
	Median, Worst              float64
	At                         string // node and device with the worst value
}

// grouped returns the findings with values by check, in the order of the findings.
func grouped(findings []Finding) []group {
	var order [][3]string
	members := map[[3]string][]Finding{}
	for _, f := range findings {
		if f.Status != Measured || f.Unit == "" || f.Wrong > 0 {
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
		list := members[key]
		values := make([]float64, len(list))
		worst := list[0]
		for i, f := range list {
			values[i] = f.Value
			if f.direction() != 0 && f.speed() < worst.speed() || f.direction() == 0 && f.Value > worst.Value {
				worst = f
			}
		}
		groups = append(groups, group{key[0], key[1], key[2], worst.Unit, len(list), trace.Median(values), worst.Value, worst.Node + " " + worst.Device})
	}
	return groups
}

// class is the kind of a device, without its number.
func (r Row) class() string { return strings.TrimRight(r.Device, "0123456789") }

// Text writes findings as text. First come the bad findings, the worst on top. Then follow the
// median and the worst value of each check, and the checks that could not be made.
func Text(w io.Writer, findings []Finding) error {
	bad := worstFirst(findings)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(bad) > 0 {
		fmt.Fprintln(t, "verdict\tnode\tdevice\tcheck\tvalue\treason")
	}
	for _, f := range bad {
		value := "-"
		if f.Status == Measured && f.Wrong == 0 {
			value = fmt.Sprintf("%.4g %s", f.Value, f.Unit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.State, f.Node, f.Device, f.Check, value, f.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(bad) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintln(t, "device\tcheck\tdevices\tmedian\tworst\tunit\tworst at\tmodel")
	for _, g := range grouped(findings) {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.4g\t%.4g\t%s\t%s\t%s\n", g.Device, g.Check, g.Count, g.Median, g.Worst, g.Unit, g.At, cmp.Or(g.Model, "-"))
	}
	if err := t.Flush(); err != nil {
		return err
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
	_, err := fmt.Fprintf(w, "\n%s\n", Line(findings))
	return err
}

// some returns the first names, and the number of the others.
func some(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Line returns the verdict on all nodes in one line.
func Line(findings []Finding) string {
	all, bad := map[string]bool{}, Bad(findings)
	for _, f := range findings {
		if f.Device != "switch" && f.Node != "all" {
			all[f.Node] = true
		}
	}
	nodes := len(all)
	if len(bad) == 0 {
		judged := slices.ContainsFunc(findings, func(f Finding) bool { return f.State == healthy })
		if !judged {
			return fmt.Sprintf("%d nodes, none judged: peers judge from %d nodes on, below that --reference does", nodes, fewestPeers)
		}
		return fmt.Sprintf("%d nodes, none slow or faulty", nodes)
	}
	return fmt.Sprintf("%d of %d nodes slow or faulty: %s", len(bad), nodes, strings.Join(bad, ", "))
}

// Reason returns why a node is slow or faulty, in one line; "" if it is neither.
func Reason(findings []Finding, node string) string {
	var reasons []string
	for _, f := range worstFirst(findings) {
		if f.Node == node {
			reasons = append(reasons, fmt.Sprintf("%s %s: %s", f.Device, f.Check, f.Reason))
		}
	}
	return strings.Join(reasons, "; ")
}
