package nodebench

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"
)

func TestBusySeconds(t *testing.T) {
	const stat = `cpu  100 20 30 5000 40 5 6 7 90 8
cpu0 50 10 15 2500 20 2 3 4 45 4
cpu1 50 10 15 2500 20 3 3 3 45 4
intr 1 2 3
`
	all := func(int) bool { return true }
	if seconds, cores := busySeconds(strings.NewReader(stat), all); !near(seconds, 1.68) || cores != 2 {
		t.Errorf("%v s of %d cores, want 1.68 of 2", seconds, cores)
	}
	last := func(core int) bool { return core == 1 }
	if seconds, cores := busySeconds(strings.NewReader(stat), last); !near(seconds, 0.84) || cores != 1 {
		t.Errorf("%v s of %d cores, want 0.84 of the last", seconds, cores)
	}
}

func TestProcessSeconds(t *testing.T) {
	const stat = "42 (a) b) R 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 4 0 100 1 1\n"
	if got := processSeconds(stat); !near(got, 3) {
		t.Errorf("%v s, want 3", got)
	}
	if got := processSeconds("42 (a"); got != 0 {
		t.Errorf("%v s of a text without numbers", got)
	}
}

// TestSiblings: the work of a sibling is the measurement's own. The same process is another's if it
// is no sibling. The machine's other work counts in both watches alike.
func TestSiblings(t *testing.T) {
	spin := exec.Command("sh", "-c", "while :; do :; done")
	expect.OK(t, spin.Start())
	defer func() { _ = spin.Process.Kill(); _ = spin.Wait() }()
	with, without := NewWatch(spin.Process.Pid), NewWatch()
	time.Sleep(time.Second)
	begin := with.ownSeconds() - with.own
	mine, _ := with.Others()
	theirs, cores := without.Others()
	if cores == 0 {
		t.Skip("the system does not report its cores")
	}
	if begin < 0.05 || theirs-mine < 0.5*begin {
		t.Errorf("the sibling used %.2f s; others took %.2f cores with it, and %.2f without it", begin, mine, theirs)
	}
}

func TestLack(t *testing.T) {
	for _, c := range []struct {
		others         float64
		cores, threads int
		want           string
	}{
		{1.1, 2, 1, ""},
		{1.3, 2, 1, "others took 1.3 of its 2 cores, and this measurement wants 1"},
		{0.3, 2, 2, "others took 0.3 of its 2 cores, and this measurement wants 2"},
		{1.2, 64, 64, ""}, // 2 % of 64 cores
		{1.4, 64, 64, "others took 1.4 of its 64 cores"},
		{7, 0, 1, ""}, // the system does not report cores
	} {
		if got := lack(c.others, c.cores, c.threads); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
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
