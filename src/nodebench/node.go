package nodebench

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/files"
	"dynmo/src/kernel"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Host measures the host's part of a node: its cores, its memory and a file system.
type Host struct {
	Kernels kernel.Backend // nil: products are left out
	Device  device.Device
	Threads int     // of the arithmetic
	Seconds float64 // for the rounds of a check
	Folder  string  // for the file that is written and read
	Small   bool    // small operands and a small file, to check that everything runs

	// Begin is called with the name of each check before the check.
	Begin func(check string)
	// Done is called with the figures of each check at its end. busy says what others took during
	// every attempt, so that the figures mean nothing; "" for figures that count.
	Done func(results []Result, busy string)
	// Watch starts to watch the machine's other users. The returned function says what they have taken
	// since; "" if a measurement counts nevertheless. See Watch.Shared. A nil Watch watches nothing.
	Watch func() (shared func(onlyUser bool) string)
}

// HostParts returns how often Measure calls Begin on a host that nothing disturbs. kernels says whether there
// are kernels, clock is the kind of the device's clock.
func HostParts(kernels bool, clock string) int {
	parts := attempts // of the triad
	if kernels {
		parts += 2 * attempts
	}
	if clock == "wall" {
		parts += attempts
	}
	return parts
}

// Measure makes all checks. gemm_f32 is a product of square matrices. triad is a = b + s·c
// (McCalpin 1995, STREAM) of arrays four times as large as the last cache. csr_f32 is a product
// with a weight of nine tenths zeros. file_write and file_read write and read a file. A check that
// fails has no figures, and the error says so.
func (h Host) Measure() error {
	checks := []hostCheck{
		{name: "gemm_f32", measure: (*hostBench).gemm, here: h.Kernels != nil},
		{name: "triad", measure: (*hostBench).triad, here: true},
		{name: "csr_f32", measure: (*hostBench).csr, here: h.Kernels != nil},
		// A virtual clock does not count the time of waiting for a disk.
		{name: "file", measure: (*hostBench).file, here: h.Device.Clock().Kind() == "wall"},
	}
	counts := false // whether any attempt was undisturbed
	for pass := 0; pass < attempts || counts && pass < mostAttempts; pass++ {
		for i := range checks {
			if c := &checks[i]; c.here && c.err == nil && c.undisturbed < attempts {
				h.Begin(c.name)
				h.attempt(c)
				counts = counts || c.undisturbed > 0
			}
		}
	}
	var failed []error
	for _, c := range checks {
		switch {
		case c.err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", c.name, c.err))
		case c.here:
			h.Done(c.results(h.Device))
		}
	}
	return errors.Join(failed...)
}

// hostCheck is a check of a host, with the figures of its attempts.
type hostCheck struct {
	name        string
	measure     func(*hostBench)
	here        bool // whether the check is possible here
	done        int  // attempts
	undisturbed int
	shared      string // what others took in the last disturbed attempt
	figures     []hostFigure
	err         error
}

// hostFigure is one figure of a check: the rates of the rounds of all attempts that count.
type hostFigure struct {
	name, unit string
	rates      []float64
	wrong      int // elements, in all attempts
}

// attempt makes a check with new memory, and adds its figures to the check's. Pages that share a set
// of a cache are chance, and so are other processes. So the attempts of a check are seconds apart.
func (h Host) attempt(c *hostCheck) {
	b := &hostBench{bench: newBench(h.Kernels, h.Device), Host: h}
	c.measure(b)
	b.free()
	if c.err = b.err; c.err == nil {
		c.add(b.figures, b.shared)
	}
}

// add adds the figures of an attempt. Rounds of a disturbed attempt count only as long as there is
// no undisturbed one. Wrong elements always count.
func (c *hostCheck) add(figures []hostFigure, shared string) {
	if c.figures == nil {
		c.figures = make([]hostFigure, len(figures))
	}
	for i, f := range figures {
		sum := &c.figures[i]
		sum.name, sum.unit, sum.wrong = f.name, f.unit, sum.wrong+f.wrong
		switch {
		case shared == "" && c.undisturbed == 0:
			sum.rates = f.rates
		case shared == "" || c.undisturbed == 0:
			sum.rates = append(sum.rates, f.rates...)
		}
	}
	if c.done++; shared == "" {
		c.undisturbed++
	} else {
		c.shared = shared
	}
}

// results returns the median and the quartiles of the rounds of each figure. busy says what others
// took, if every attempt was disturbed.
func (c *hostCheck) results(dev device.Device) (results []Result, busy string) {
	b := newBench(nil, dev)
	for _, f := range c.figures {
		b.add(f.name, estimated(f.rates), f.unit, 0, f.wrong)
	}
	if c.undisturbed == 0 {
		busy = fmt.Sprintf("%s, in all of %d attempts", c.shared, c.done)
	}
	return b.results, busy
}

// hostBench is the state of one attempt of a check.
type hostBench struct {
	*bench
	Host
	figures []hostFigure
	shared  string // what others took during the rounds; "" if the rounds count
}

const (
	// attempts is how many undisturbed attempts a check has, each with new memory. mostAttempts
	// bounds the attempts with the disturbed ones. If the first attempts of all checks are disturbed,
	// the host is busy, and no more follow.
	attempts, mostAttempts = 3, 6
	// fewestTimed is the least number of rounds in an attempt, timedRounds the usual number.
	fewestTimed, timedRounds = 2, 5
	// csrPercent is the percentage of zeros of the sparse check.
	csrPercent = 90
)

// BusyRule says when a measurement counts.
var BusyRule = fmt.Sprintf("A measurement of a host counts if others took at most %g of a core. A disturbed one is repeated, at most %d times. "+
	"A check without a measurement that counts is not judged.", judgedSlack, mostAttempts-attempts)

// watch watches the machine's other users while do runs.
func (h *hostBench) watch(onlyUser bool, do func()) {
	if h.Watch == nil {
		do()
		return
	}
	shared := h.Watch()
	do()
	h.shared = shared(onlyUser)
}

// rates makes a call once to warm up, and then in rounds for the seconds of an attempt. It returns
// the rate of each round. By default a round lasts longer than Linux's period of 0.1 s for a quota of
// cores, so that a quota shows.
func (h *hostBench) rates(work float64, call func()) (rates []float64) {
	once := h.span(call, 1)
	seconds := h.Seconds / attempts
	times := max(1, int(seconds/timedRounds/once))
	h.watch(false, func() {
		for begin := h.dev.Clock().Now(); len(rates) < fewestTimed || h.dev.Clock().Now()-begin < seconds; {
			rates = append(rates, work/h.span(call, times))
		}
	})
	return rates
}

// figure adds a figure of this attempt.
func (h *hostBench) figure(name string, rates []float64, unit string, wrong int) {
	h.figures = append(h.figures, hostFigure{name, unit, rates, wrong})
}

// size returns full, or small if h.Small is set.
func (h *hostBench) size(full, small int) int {
	if h.Small {
		return small
	}
	return full
}

func (h *hostBench) gemm() {
	n := h.size(2048, 64)
	draw := random.Keyed(1).NormFloat64
	inp, weight, out := h.matrix(n*n, draw), h.matrix(n*n, draw), h.matrix(n*n, nil)
	if h.err != nil {
		return
	}
	rates := h.rates(2e-9*float64(n)*float64(n)*float64(n), func() { h.k.MatmulForward(h.stream, out, inp, weight, none, n, n, n) })
	x, w := h.download(inp), h.download(weight)
	wrong := wrongRows(h.download(out), n, n, n, func(i, j, l int) (float32, float32) { return x[i*n+l], w[j*n+l] })
	h.figure("gemm_f32", rates, "GFLOP/s", wrong)
}

// lastCache returns the bytes of a processor's largest cache; 32 MiB if the system does not report
// it.
func lastCache() int64 {
	text, _ := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index3/size")
	kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"), 10, 64)
	if err != nil {
		return 32 << 20
	}
	return kib << 10
}

// triad counts 24 bytes for an element, as STREAM does. Departs: the loop is in Go, where the
// processor also reads the lines of an array that it overwrites.
func (h *hostBench) triad() {
	const least, most = 64 << 20, 512 << 20 // bytes of an array; a virtual machine may report a cache that it only has a share of
	bytes := min(max(4*lastCache(), least), most)
	if h.Small {
		bytes = 1 << 20
	}
	n := int(bytes / 8)
	a, b, c := tensor.Of[float64](h.alloc(bytes)), tensor.Of[float64](h.alloc(bytes)), tensor.Of[float64](h.alloc(bytes))
	if h.err != nil {
		return
	}
	const s = 3
	split(n, h.Threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			a[i], b[i], c[i] = 0, float64(i), 2
		}
	})
	rates := h.rates(24e-9*float64(n), func() {
		split(n, h.Threads, func(lo, hi int) {
			a, b, c := a[lo:hi], b[lo:hi], c[lo:hi]
			for i := range a {
				a[i] = b[i] + s*c[i]
			}
		})
	})
	check := checker{}
	for i := range a {
		check.within(a[i], float64(i)+2*s, 0)
	}
	h.figure("triad", rates, "GB/s", check.wrong)
}

func (h *hostBench) csr() {
	n, c, o := h.size(256, 8), h.size(2048, 64), h.size(2048, 64)
	w := newBlocks(o, c, csrPercent, 1)
	weight, inp, out := w.csr(h.bench, upload(h.bench, w.values)), h.matrix(n*c, random.Keyed(2).NormFloat64), h.matrix(n*o, nil)
	if h.err != nil {
		return
	}
	rates := h.rates(2e-9*float64(n)*float64(len(w.values)), func() { h.k.SpMMForward(h.stream, out, inp, weight, none, n) })
	x := h.download(inp)
	wrong := wrongRows(h.download(out), n, o, c, func(i, j, l int) (float32, float32) { return x[i*c+l], w.dense[j*c+l] })
	h.figure("csr_f32", rates, "GFLOP/s", wrong)
}

// file writes a file to disk, asks the system to drop it from memory, and reads it. On a file
// system in memory the rate is that of memory.
func (h *hostBench) file() {
	bytes := h.size(64<<20, 1<<20)
	text := make([]byte, bytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	dir, remove, err := files.Scratch(h.Folder, "dynmo-bench") // nodes may share the folder
	if h.err = err; err != nil {
		return
	}
	defer remove()
	path := filepath.Join(dir, "file")
	back, wrong := make([]byte, bytes), 0
	var rates [2][]float64
	round := func() error {
		clock := h.dev.Clock()
		begin := clock.Now()
		if err := writeThrough(path, text); err != nil {
			return err
		}
		written := clock.Now()
		if err := readBack(path, back); err != nil {
			return err
		}
		for i, seconds := range []float64{written - begin, clock.Now() - written} {
			rates[i] = append(rates[i], 1e-9*float64(bytes)/seconds)
		}
		for i := range back {
			if back[i] != text[i] {
				wrong++
			}
		}
		return nil
	}
	h.watch(true, func() {
		for i := 0; i < fewestTimed && h.err == nil; i++ {
			h.err = round()
		}
	})
	if h.err != nil {
		return
	}
	for i, name := range []string{"file_write", "file_read"} {
		h.figure(name, rates[i], "GB/s", wrong)
	}
}

// writeThrough writes a file to disk, waits until it is there, and asks the system to drop it from
// memory.
func writeThrough(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // if the file system cannot drop it, reading is measured from memory
	return errors.Join(err, f.Close())
}

func readBack(path string, text []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.ReadFull(f, text)
	return err
}
