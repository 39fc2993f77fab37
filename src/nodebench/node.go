package nodebench

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	// Done is called with the figures of each check at its end.
	Done func([]Result)
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
	for range attempts {
		for i := range checks {
			if c := &checks[i]; c.here && c.err == nil {
				h.Begin(c.name)
				h.attempt(c)
			}
		}
	}
	var failed []error
	for _, c := range checks {
		if c.err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.name, c.err))
			continue
		}
		h.Done(c.best)
	}
	return errors.Join(failed...)
}

// hostCheck is a check of a host, with the results of its attempts.
type hostCheck struct {
	name    string
	measure func(*hostBench)
	here    bool     // whether the check is possible here
	best    []Result // best figures of the attempts so far
	err     error
}

// attempt makes a check with new memory. It keeps the better value of each figure, and adds up
// wrong elements. Pages that share a set of a cache are chance, and so are other processes. So the
// attempts of a check are seconds apart.
func (h Host) attempt(c *hostCheck) {
	b := &hostBench{bench: newBench(h.Kernels, h.Device), Host: h}
	c.measure(b)
	b.free()
	c.err = b.err
	if c.best == nil {
		c.best = b.results
		return
	}
	for i, r := range b.results {
		wrong := c.best[i].Wrong + r.Wrong
		if r.Value > c.best[i].Value {
			c.best[i] = r
		}
		c.best[i].Wrong = wrong
	}
}

// hostBench is the state of one check of a host.
type hostBench struct {
	*bench
	Host
}

const (
	// attempts is how often a check is made, each time with new memory.
	attempts = 3
	// fewestTimed is the least number of rounds in an attempt, timedRounds the usual number.
	fewestTimed, timedRounds = 2, 5
	// csrPercent is the percentage of zeros of the sparse check.
	csrPercent = 90
)

// best makes a call once to warm up, and then in rounds for the seconds of a check. It returns the
// rate of the best round, as STREAM does, and the quartiles of all rounds. The best round shows the
// device, whatever slowed other rounds. A round lasts longer than Linux's period of 0.1 s for a
// quota of cores, so that a quota shows.
func (h *hostBench) best(work float64, call func()) estimate {
	once := h.span(call, 1)
	seconds := h.Seconds / attempts
	times := max(1, int(seconds/timedRounds/once))
	var rates []float64
	for begin := h.dev.Clock().Now(); len(rates) < fewestTimed || h.dev.Clock().Now()-begin < seconds; {
		rates = append(rates, work/h.span(call, times))
	}
	e := estimated(rates)
	e.median = slices.Max(rates)
	return e
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
	rate := h.best(2e-9*float64(n)*float64(n)*float64(n), func() { h.k.MatmulForward(h.stream, out, inp, weight, none, n, n, n) })
	x, w := h.download(inp), h.download(weight)
	wrong := wrongRows(h.download(out), n, n, n, func(i, j, l int) (float32, float32) { return x[i*n+l], w[j*n+l] })
	h.add("gemm_f32", rate, "GFLOP/s", 0, wrong)
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
	rate := h.best(24e-9*float64(n), func() {
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
	h.add("triad", rate, "GB/s", 0, check.wrong)
}

func (h *hostBench) csr() {
	n, c, o := h.size(256, 8), h.size(2048, 64), h.size(2048, 64)
	w := newBlocks(o, c, csrPercent, 1)
	weight, inp, out := w.csr(h.bench, upload(h.bench, w.values)), h.matrix(n*c, random.Keyed(2).NormFloat64), h.matrix(n*o, nil)
	if h.err != nil {
		return
	}
	rate := h.best(2e-9*float64(n)*float64(len(w.values)), func() { h.k.SpMMForward(h.stream, out, inp, weight, none, n) })
	x := h.download(inp)
	wrong := wrongRows(h.download(out), n, o, c, func(i, j, l int) (float32, float32) { return x[i*c+l], w.dense[j*c+l] })
	h.add("csr_f32", rate, "GFLOP/s", 0, wrong)
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
	var seconds [2][]float64
	for range fewestTimed {
		clock := h.dev.Clock()
		begin := clock.Now()
		if h.err = writeThrough(path, text); h.err != nil {
			return
		}
		written := clock.Now()
		if h.err = readBack(path, back); h.err != nil {
			return
		}
		seconds[0], seconds[1] = append(seconds[0], written-begin), append(seconds[1], clock.Now()-written)
		for i := range back {
			if back[i] != text[i] {
				wrong++
			}
		}
	}
	for i, name := range []string{"file_write", "file_read"} {
		h.add(name, spans{seconds[i]}.rate(0, 1e-9*float64(bytes)), "GB/s", 0, wrong)
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
