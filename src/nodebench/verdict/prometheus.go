package verdict

import (
	"fmt"
	"io"
	"strings"
)

// Prometheus writes findings in the text format of node_exporter's textfile collector.
func Prometheus(w io.Writer, findings []Finding) error {
	var text strings.Builder
	text.WriteString("# HELP dynmo_bench_value What a check measured, in the unit of its label.\n# TYPE dynmo_bench_value gauge\n")
	for _, f := range findings {
		if f.Status == Measured && f.Unit != "" && f.Wrong == 0 {
			fmt.Fprintf(&text, "dynmo_bench_value{%s,unit=\"%s\"} %g\n", f.labels(), escape(f.Unit), f.Value)
		}
	}
	text.WriteString("# HELP dynmo_bench_bad Whether a check is slow (1), invalid (2) or faulty (3), else 0.\n# TYPE dynmo_bench_bad gauge\n")
	for _, f := range findings {
		if f.State != unjudged {
			fmt.Fprintf(&text, "dynmo_bench_bad{%s} %d\n", f.labels(), f.State-healthy)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (r Row) labels() string {
	return fmt.Sprintf(`node="%s",device="%s",check="%s"`, escape(r.Node), escape(r.Device), escape(r.Check))
}

// escape escapes text for the value of a label.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}
