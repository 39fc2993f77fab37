package verdict

import (
	"fmt"
	"io"
	"strings"
)

// families are the names and HELP texts of the metrics. A HELP text never changes: node_exporter drops
// the series of a file whose HELP text differs from that of another file.
var families = map[string]string{
	"dynmo_bench_value":             "What a check measured, in the unit of its label.",
	"dynmo_bench_bad":               "Whether a check is slow (1), invalid (2) or faulty (3), else 0.",
	"dynmo_bench_busy":              "Always 1: others used this host, so a check could not be judged.",
	"dynmo_bench_verdict":           "Whether this is the verdict on all nodes (1), else 0.",
	"dynmo_bench_status":            "Exit status of the last measurement.",
	"dynmo_bench_timestamp_seconds": "Time of the last measurement, in seconds since 1970.",
	"dynmo_bench_info":              "Always 1; its label has the version of dynmo that measured.",
}

// Prometheus writes findings in the text format of node_exporter's textfile collector.
func Prometheus(w io.Writer, findings []Finding, s Summary) error {
	var text strings.Builder
	family := func(name string) {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s gauge\n", name, families[name], name)
	}
	family("dynmo_bench_value")
	for _, f := range findings {
		if f.hasValue() && f.Status == Measured {
			fmt.Fprintf(&text, "dynmo_bench_value{%s,unit=\"%s\"} %g\n", f.labels(), escape(f.Unit), f.Value)
		}
	}
	family("dynmo_bench_bad")
	for _, f := range findings {
		if f.State >= healthy {
			fmt.Fprintf(&text, "dynmo_bench_bad{%s} %d\n", f.labels(), f.State-healthy)
		}
	}
	if hosts := BusyNodes(findings); len(hosts) > 0 {
		family("dynmo_bench_busy")
		for _, host := range hosts {
			fmt.Fprintf(&text, "dynmo_bench_busy{node=\"%s\"} 1\n", escape(host))
		}
	}
	bench := fmt.Sprintf("bench=\"%s\"", escape(s.Bench))
	family("dynmo_bench_verdict")
	for _, known := range outcomes {
		is := 0
		if known.outcome == s.Verdict {
			is = 1
		}
		fmt.Fprintf(&text, "dynmo_bench_verdict{%s,verdict=\"%s\"} %d\n", bench, known.outcome, is)
	}
	family("dynmo_bench_status")
	fmt.Fprintf(&text, "dynmo_bench_status{%s} %d\n", bench, s.Status)
	if !s.Measured.IsZero() {
		family("dynmo_bench_timestamp_seconds")
		fmt.Fprintf(&text, "dynmo_bench_timestamp_seconds{%s} %d\n", bench, s.Measured.Unix())
	}
	family("dynmo_bench_info")
	fmt.Fprintf(&text, "dynmo_bench_info{%s,version=\"%s\"} 1\n", bench, escape(s.Version))
	_, err := io.WriteString(w, text.String())
	return err
}

func (r Row) labels() string {
	text := fmt.Sprintf(`node="%s",device="%s",check="%s"`, escape(r.Node), escape(r.Device), escape(r.Check))
	if r.Clock != "" {
		text += fmt.Sprintf(`,clock="%s"`, escape(r.Clock))
	}
	return text
}

// escape escapes text for the value of a label.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}
