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
	all, own cpuTime // used by everyone on this process's cores, and by this process and its siblings
}

// cpuTime is CPU time in seconds. user is the part outside the kernel, with the time that the host of a
// virtual machine took.
type cpuTime struct{ total, user float64 }

func (t cpuTime) add(u cpuTime) cpuTime { return cpuTime{t.total + u.total, t.user + u.user} }
func (t cpuTime) sub(u cpuTime) cpuTime { return cpuTime{t.total - u.total, t.user - u.user} }

// NewWatch starts a watch. It reads the load average, which the measurement has not affected yet.
// siblings are the process ids of the measurement's other processes on this machine. Their work
// counts as the measurement's own.
func NewWatch(siblings ...int) *Watch {
	w := &Watch{start: time.Now(), siblings: siblings}
	w.own = w.ownTime()
	w.all, _ = machineTime()
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
	others, cores := w.Others()
	return disturbed(others, cores, threads)
}

// Shared says how many cores others have used since the start of the watch, if they were more than a
// judged measurement allows; "" if not. Cores that the measurement left free count too: they share
// memory, caches and arithmetic units with the others. With onlyUser, the kernel's time does not count:
// the kernel's threads work for a measurement of files or messages.
func (w *Watch) Shared(onlyUser bool) string {
	others, cores := w.others()
	if onlyUser {
		return shared(others.user, cores)
	}
	return shared(others.total, cores)
}

// Others returns two numbers. cores is the number of cores that this process may use; 0 if
// unknown. others is how many of these cores other processes, or the host of a virtual machine,
// have used since the start of the watch. The system counts in ticks, so others is a lower bound:
// a tick of each core and each sibling is left out.
func (w *Watch) Others() (others float64, cores int) {
	used, cores := w.others()
	return used.total, cores
}

// others returns CPU time per second of the watch, and the number of cores.
func (w *Watch) others() (cpuTime, int) {
	all, cores := machineTime()
	used := all.sub(w.all).sub(w.ownTime().sub(w.own))
	resolution := tick * float64(cores+len(w.siblings))
	seconds := time.Since(w.start).Seconds()
	return cpuTime{max(0, used.total-resolution) / seconds, max(0, used.user-resolution) / seconds}, cores
}

const (
	// slack is how much of a core others may use beyond the free cores. A system is never quite idle.
	slack = 0.25
	// judgedSlack is how much of a core others may use during a measurement that is judged. Threads with
	// equal parts of the work wait for the slowest one, so this part of a core can cost this part of the
	// speed. It is half of what a slow device lacks.
	judgedSlack = 0.1
)

// Busy reports whether others used cores that `threads` threads needed.
func Busy(others float64, cores, threads int) bool {
	return cores > 0 && others > float64(cores-threads)+slack
}

func disturbed(others float64, cores, threads int) string {
	if !Busy(others, cores, threads) {
		return ""
	}
	return fmt.Sprintf("this machine was busy: others took %.1f of its %d cores, and this measurement wants %d: figures may be wrong, measure again at rest",
		others, cores, threads)
}

func shared(others float64, cores int) string {
	if cores == 0 || others <= judgedSlack {
		return ""
	}
	noun := "cores"
	if cores == 1 {
		noun = "core"
	}
	return fmt.Sprintf("others took %.1f of %d %s", others, cores, noun)
}

// tick is the unit of /proc/stat on every Linux (USER_HZ), in seconds.
const tick = 0.01

// machineTime returns the CPU time of the cores that this process may use since the system started, and
// the number of these cores. Both are 0 if the system does not report them.
func machineTime() (used cpuTime, cores int) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return cpuTime{}, 0
	}
	defer f.Close()
	var allowed unix.CPUSet
	known := unix.SchedGetaffinity(0, &allowed) == nil
	return busyTime(f, func(core int) bool { return !known || allowed.IsSet(core) })
}

// busyTime parses the text of /proc/stat, for the allowed cores: proc(5).
func busyTime(stat io.Reader, allowed func(core int) bool) (used cpuTime, cores int) {
	for lines := bufio.NewScanner(stat); lines.Scan() && strings.HasPrefix(lines.Text(), "cpu"); {
		var name string
		var user, nice, system, idle, iowait, irq, softirq, steal float64
		_, _ = fmt.Sscan(lines.Text(), &name, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
		core, err := strconv.Atoi(strings.TrimPrefix(name, "cpu"))
		if err != nil || !allowed(core) { // the first line has the sums of all cores
			continue
		}
		outside := tick * (user + nice + steal)
		used = used.add(cpuTime{outside + tick*(system+irq+softirq), outside})
		cores++
	}
	return used, cores
}

// ownTime returns the CPU time of this process and its siblings.
func (w *Watch) ownTime() (own cpuTime) {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		user := float64(used.Utime.Nano()) * 1e-9
		own = cpuTime{user + float64(used.Stime.Nano())*1e-9, user}
	}
	for _, pid := range w.siblings {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			own = own.add(processTime(string(text)))
		}
	}
	return own
}

// processTime returns the CPU time in the text of /proc/PID/stat: fields 14 and 15 of proc(5). The name in
// field 2 may contain spaces and parentheses.
func processTime(stat string) cpuTime {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return cpuTime{}
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return cpuTime{tick * (user + system), tick * user}
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
