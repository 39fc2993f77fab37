package nodebench

import (
	"strings"
	"testing"
	"time"
)

func TestBusySeconds(t *testing.T) {
	const stat = `cpu  100 20 30 5000 40 5 6 7 90 8
cpu0 50 10 15 2500 20 2 3 4 45 4
cpu1 50 10 15 2500 20 3 3 3 45 4
intr 1 2 3
`
	if seconds, cores := busySeconds(strings.NewReader(stat)); !near(seconds, 1.68) || cores != 2 {
		t.Errorf("%v s of %d cores, want 1.68 of 2", seconds, cores)
	}
}

func TestDisturbed(t *testing.T) {
	for _, c := range []struct {
		others         float64
		cores, threads int
		want           string
	}{
		{1.1, 2, 1, ""},
		{1.3, 2, 1, "others took 1.3 of its 2 cores, and this measurement wants 1"},
		{0.3, 2, 2, "others took 0.3 of its 2 cores, and this measurement wants 2"},
		{7, 0, 1, ""}, // the system does not report cores
	} {
		if got := disturbed(c.others, c.cores, c.threads); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestMachine(t *testing.T) {
	m := NewWatch().Machine("abc")
	if _, err := time.Parse(time.RFC3339, m.Date); err != nil || m.Host == "" || m.CPU == "" || m.Revision != "abc" {
		t.Errorf("%+v: %v", m, err)
	}
}

func TestUnsteady(t *testing.T) {
	results := []Result{
		{Name: "a", Value: 2, Low: 1.9, High: 2.05, Unit: "ratio"},
		{Name: "b", Value: 2, Low: 1.9, High: 2.2, Unit: "ratio"},
		{Name: "c", Value: 2, Low: 1, High: 3, Unit: "GFLOP/s"}, // not a ratio: the machine's speed may change
	}
	if got := Unsteady(results[:1]); got != "" {
		t.Errorf("warning %q", got)
	}
	if got := Unsteady(results); !strings.Contains(got, "10 % of the ratio: b: ") {
		t.Errorf("warning %q", got)
	}
}
