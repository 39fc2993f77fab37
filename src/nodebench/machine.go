package nodebench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/record"
)

// Machine is the place and time of a measurement.
type Machine struct {
	Date     string  `json:"date"` // RFC 3339, UTC
	Host     string  `json:"host"`
	Revision string  `json:"revision"` // of the source
	Load     float64 `json:"load"`     // mean number of runnable tasks in the minute before
	CPU      string  `json:"cpu"`
	Path     string  `json:"path,omitempty"` // instruction set of the kernels in C
	BLAS     string  `json:"blas,omitempty"` // with the core type of its kernels
	Threads  int     `json:"threads,omitempty"`
	Device   string  `json:"device,omitempty"` // the measured GPU
}

// Hardware returns the names of the measured hardware: the GPU, or the CPU with the kernels'
// instruction set, the BLAS and the threads.
func (m Machine) Hardware() string {
	if m.Device != "" {
		return m.Device
	}
	parts := []string{m.CPU, m.Path, m.BLAS}
	switch {
	case m.Threads == 1:
		parts = append(parts, "1 thread")
	case m.Threads > 1:
		parts = append(parts, fmt.Sprintf("%d threads", m.Threads))
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

// String returns the other fields: date, host, revision and load.
func (m Machine) String() string {
	return fmt.Sprintf("%s, host %s, revision %s, load average %.2f", m.Date, m.Host, m.Revision, m.Load)
}

// Watch holds the machine's state at the start of a measurement.
type Watch struct {
	start    time.Time
	load     float64
	siblings []int   // processes of the same measurement on this machine
	all, own float64 // CPU seconds used by everyone on this process's cores, and by this process and its siblings
}

// NewWatch starts a watch. It reads the load average, which the measurement has not affected yet.
// siblings are the process ids of the measurement's other processes on this machine. Their work
// counts as the measurement's own.
func NewWatch(siblings ...int) *Watch {
	w := &Watch{start: time.Now(), siblings: siblings}
	w.own = w.ownSeconds()
	w.all, _ = machineSeconds()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &w.load) // 0 if the system has no load average
	}
	return w
}

// Machine returns the machine at the start of the watch.
func (w *Watch) Machine(revision string) Machine {
	here := record.Here(false)
	return Machine{
		Date: w.start.UTC().Format(time.RFC3339), Host: here.Host, Revision: revision, Load: w.load, CPU: here.CPU,
	}
}

// Disturbed returns a warning if others have used cores that this process's threads needed since
// the start of the watch; "" if not. Others are processes, and the host of a virtual machine.
func (w *Watch) Disturbed(threads int) string {
	lack := w.Lack(threads)
	if lack == "" {
		return ""
	}
	return "this machine was busy: " + lack + ": figures may be wrong, measure again at rest"
}

// Lack says how many cores others have used since the start of the watch, if the measurement's
// threads needed some of them; "" if not.
func (w *Watch) Lack(threads int) string {
	others, cores := w.Others()
	return lack(others, cores, threads)
}

// Others returns two numbers. cores is the number of cores that this process may use; 0 if
// unknown. others is how many of these cores other processes, or the host of a virtual machine,
// have used since the start of the watch. The system counts in ticks, so others is a lower bound:
// a tick of each core is left out.
func (w *Watch) Others() (others float64, cores int) {
	all, cores := machineSeconds()
	seconds := all - w.all - (w.ownSeconds() - w.own) - tick*float64(cores)
	return max(0, seconds/time.Since(w.start).Seconds()), cores
}

// slack is how much of a core others may use beyond the free cores, and slackShare is the same as a
// share of the cores. The larger one counts. A system is never quite idle.
const slack, slackShare = 0.25, 0.02

// Busy reports whether others used cores that `threads` threads needed.
func Busy(others float64, cores, threads int) bool {
	return cores > 0 && others > float64(cores-threads)+max(slack, slackShare*float64(cores))
}

func lack(others float64, cores, threads int) string {
	if !Busy(others, cores, threads) {
		return ""
	}
	return fmt.Sprintf("others took %.1f of its %d cores, and this measurement wants %d", others, cores, threads)
}

// tick is the unit of /proc/stat on every Linux (USER_HZ), in seconds.
const tick = 0.01

// machineSeconds returns how many cores this process may use, and the CPU seconds of these cores
// since the system started. Seconds that the host of a virtual machine took are included. Both are
// 0 if the system does not report them.
func machineSeconds() (seconds float64, cores int) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	var allowed unix.CPUSet
	known := unix.SchedGetaffinity(0, &allowed) == nil
	return busySeconds(f, func(core int) bool { return !known || allowed.IsSet(core) })
}

// busySeconds parses the text of /proc/stat, for the allowed cores: proc(5).
func busySeconds(stat io.Reader, allowed func(core int) bool) (seconds float64, cores int) {
	for lines := bufio.NewScanner(stat); lines.Scan() && strings.HasPrefix(lines.Text(), "cpu"); {
		var name string
		var user, nice, system, idle, iowait, irq, softirq, steal float64
		_, _ = fmt.Sscan(lines.Text(), &name, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
		core, err := strconv.Atoi(strings.TrimPrefix(name, "cpu"))
		if err != nil || !allowed(core) { // the first line has the sums of all cores
			continue
		}
		seconds += tick * (user + nice + system + irq + softirq + steal)
		cores++
	}
	return seconds, cores
}

// ownSeconds returns the CPU seconds of this process and its siblings.
func (w *Watch) ownSeconds() float64 {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	seconds := float64(used.Utime.Nano()+used.Stime.Nano()) * 1e-9
	for _, pid := range w.siblings {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			seconds += processSeconds(string(text))
		}
	}
	return seconds
}

// processSeconds returns the CPU seconds in the text of /proc/PID/stat: fields 14 and 15 of
// proc(5). The name in field 2 may contain spaces and parentheses.
func processSeconds(stat string) float64 {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return tick * (user + system)
}

// unsteady is the least relative distance of quartiles at which a figure is unreliable.
const unsteady = 0.1

// Unsteady returns a warning that names the ratios with distant quartiles; "" if there are none.
func Unsteady(results []Result) string {
	var names []string
	for _, r := range results {
		if r.Unit == "ratio" && r.High-r.Low > unsteady*r.Value {
			names = append(names, r.Name)
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n > 3:
		names = append(names[:3], fmt.Sprintf("and %d more", n-3))
	}
	return fmt.Sprintf("quartiles of the pairs lie further apart than %g %% of the ratio: %s: measure again at rest, or with more --rounds",
		100*unsteady, strings.Join(names, ", "))
}
