package nodebench

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"
)

func TestBusyTime(t *testing.T) {
	const stat = `cpu  100 20 30 5000 40 5 6 7 90 8
cpu0 50 10 15 2500 20 2 3 4 45 4
cpu1 50 10 15 2500 20 3 3 3 45 4
intr 1 2 3
`
	all := func(int) bool { return true }
	if used, cores := busyTime(strings.NewReader(stat), all); !near(used.total, 1.68) || !near(used.user, 1.27) || cores != 2 {
		t.Errorf("%v s of %d cores, want 1.68 of 2, 1.27 outside the kernel", used, cores)
	}
	last := func(core int) bool { return core == 1 }
	if used, cores := busyTime(strings.NewReader(stat), last); !near(used.total, 0.84) || cores != 1 {
		t.Errorf("%v s of %d cores, want 0.84 of the last", used, cores)
	}
}

func TestProcessTime(t *testing.T) {
	const stat = "42 (a) b) R 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 4 0 100 1 1\n"
	if got := processTime(stat); !near(got.total, 3) || !near(got.user, 2.5) {
		t.Errorf("%v s, want 3, 2.5 outside the kernel", got)
	}
	if got := processTime("42 (a"); got != (cpuTime{}) {
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
	spent := with.ownTime().sub(with.own).total
	mine, _ := with.Others()
	theirs, cores := without.Others()
	if cores == 0 {
		t.Skip("the system does not report its cores")
	}
	if spent < 0.05 || theirs-mine < 0.5*spent {
		t.Errorf("the sibling used %.2f s; others took %.2f cores with it, and %.2f without it", spent, mine, theirs)
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

// TestShared: others count on free cores too.
func TestShared(t *testing.T) {
	for _, c := range []struct {
		others float64
		cores  int
		want   string
	}{
		{0.1, 2, ""},
		{0.16, 2, "others took 0.2 of 2 cores"},
		{0.4, 1, "others took 0.4 of 1 core"},
		{1, 64, "others took 1.0 of 64 cores"},
		{7, 0, ""}, // the system does not report cores
	} {
		if got := shared(c.others, c.cores); got != c.want {
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
