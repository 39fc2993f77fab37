package record

import (
	"strings"
	"testing"
)

func TestProcessorName(t *testing.T) {
	for _, c := range []struct{ cpuinfo, want string }{
		{"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n\nmodel\t: 80\nmodel name\t: another\n",
			"AMD EPYC (Zen 4)"},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.80GHz\nstepping\t: 7\n",
			"Intel(R) Xeon(R) CPU @ 2.80GHz (Cascade Lake)"},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\nstepping\t: 3\n", "Xeon (Skylake-X)"},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 45\nmodel name\t: Xeon\nstepping\t: 7\n", "Xeon (family 6, model 45)"},
		{"model name\t: A CPU: 2.20GHz\n", "A CPU: 2.20GHz"},
		{"processor : 0\n", "unknown"},
		{"", "unknown"},
	} {
		if got := processorName(strings.NewReader(c.cpuinfo)); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
