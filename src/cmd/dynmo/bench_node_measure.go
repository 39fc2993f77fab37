package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	devcuda "dynmo/src/device/cuda"
	"dynmo/src/kernel/cpu"
	"dynmo/src/kernel/cuda"
	"dynmo/src/nodebench"
	"dynmo/src/nodebench/verdict"
	"dynmo/src/record"
	"dynmo/src/tensor"
)

// recorder collects the rows of a process, and writes each row to its file at once. It ends the
// process if a check runs out of time.
type recorder struct {
	node    string
	file    *os.File // nil: no records are written
	failed  error
	rows    []verdict.Row
	small   bool // see verdict.Row
	whole   bool // limit is for all checks together, not for each
	limit   time.Duration
	timer   *time.Timer
	expired func(verdict.Row)
	mutex   sync.Mutex

	watch func() (shared func(onlyUser bool) string) // see nodebench.Host; nil if rates mean nothing anyway

	bar          *record.Bar // nil: nobody looks
	begun, parts int         // parts of the work that have begun, and all of them; a part takes about a second
}

// next shows that the next part of the work begins.
func (r *recorder) next() {
	r.bar.Show(int64(r.begun), int64(max(r.parts, r.begun+1)))
	r.begun++
}

// newRecorder returns the recorder of a rank.
func (n *nodeFlags) newRecorder(rank int) (*recorder, error) {
	r := &recorder{node: nodeName(), limit: n.limit, whole: n.quick, small: n.small}
	r.watch = n.watch()
	if n.records == "" {
		return r, nil
	}
	if err := os.MkdirAll(n.records, 0o777); err != nil {
		return nil, fmt.Errorf("--records: %w", err)
	}
	var err error
	file := target{flag: "records", path: filepath.Join(n.records, fmt.Sprintf("%s.%d.jsonl", r.node, rank)), force: n.force}
	if err := file.check(); err != nil {
		return nil, err
	}
	r.file, err = os.Create(file.path)
	if err != nil {
		return nil, fmt.Errorf("--records: %w", err)
	}
	return r, nil
}

// watch returns how to watch the users of the host that are not among siblings, the process ids of
// this measurement's other processes. It returns nil if rates mean nothing, or do not depend on others.
func (n *nodeFlags) watch(siblings ...int) func() func(onlyUser bool) string {
	if n.small || n.bench.clock != "wall" {
		return nil
	}
	return func() func(bool) string { return nodebench.NewWatch(siblings...).Shared }
}

// begin starts the time limit of a check. If the check exceeds it, a row reports that, and expired
// ends the process: a hanging GPU call cannot be cancelled. A check of the host that others have
// slowed is busy, not late.
func (r *recorder) begin(device, model, check string) {
	r.next()
	row := verdict.Row{Node: r.node, Device: device, Model: model, Check: check}
	late := row
	late.Status = verdict.TimedOut
	row.Status = verdict.Begun
	r.write(row)
	if r.timer != nil && r.whole {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	shared := func(bool) string { return "" }
	if r.watch != nil && (r.whole || !strings.HasPrefix(device, "gpu")) { // a GPU that hangs does so on a busy host too
		shared = r.watch()
	}
	r.timer = time.AfterFunc(r.limit, func() {
		late.Note = fmt.Sprintf("the check did not end within %v", r.limit)
		if others := shared(true); others != "" {
			late.Status, late.Note = verdict.Busy, others+"; "+late.Note
		}
		r.write(late)
		r.expired(late)
	})
}

// write writes a row to the file, if there is one.
func (r *recorder) write(row verdict.Row) {
	if r.file == nil {
		return
	}
	text, err := json.Marshal(row)
	if err == nil {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		_, err = r.file.Write(append(text, '\n'))
	}
	if r.failed == nil {
		r.failed = err
	}
}

// add collects rows, and writes them to the file.
func (r *recorder) add(rows ...verdict.Row) {
	for _, row := range rows {
		row.Small = r.small
		r.rows = append(r.rows, row)
		r.write(row)
	}
}

// results adds the figures of a device as rows. busy says what others took, if the figures mean
// nothing for that.
func (r *recorder) results(device, model string, results []nodebench.Result, busy string) {
	status := verdict.Measured
	if busy != "" {
		status = verdict.Busy
	}
	for _, x := range results {
		name := strings.TrimPrefix(strings.TrimPrefix(x.Name, "emulated/"), "gpu/")
		row := verdict.Row{Node: r.node, Device: device, Model: model, Check: name, Value: x.Value, Low: x.Low, High: x.High,
			Unit: x.Unit, Status: status, Wrong: x.Wrong, Note: busy}
		if x.Clock == verdict.Virtual {
			row.Clock = x.Clock
		}
		r.add(row)
	}
}

// unavailable adds a row for a check that is impossible here.
func (r *recorder) unavailable(device, model, check string, why error) {
	r.add(verdict.Row{Node: r.node, Device: device, Model: model, Check: check, Status: verdict.NotAvailable,
		Note: strings.Join(strings.Fields(why.Error()), " ")})
}

// broken adds a row for a check that failed.
func (r *recorder) broken(device, model, check string, err error) {
	r.add(verdict.Row{Node: r.node, Device: device, Model: model, Check: check, Status: verdict.Faulty,
		Note: strings.Join(strings.Fields(err.Error()), " ")})
}

// idle stops the time limit of the last check.
func (r *recorder) idle() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// close stops the time limit and closes the file.
func (r *recorder) close() error {
	r.idle()
	if r.file == nil {
		return nil
	}
	r.write(verdict.Row{Node: r.node, Status: verdict.Ended})
	err := r.file.Close()
	if r.failed != nil {
		err = r.failed
	}
	if err != nil {
		return fmt.Errorf("--records: %w", err)
	}
	return nil
}

// expected returns how many parts the checks of one of a node's processes have.
func (n *nodeFlags) expected(local, processes int) (parts int) {
	if n.passive() {
		return 0
	}
	burn := 0
	if n.burn > 0 {
		burn = 1 + int(n.burn/time.Second)
	}
	if local == 0 {
		parts += nodebench.HostParts(cpu.Built, n.clock.Kind())
		if cpu.Built {
			parts += burn
		}
	}
	if devcuda.Built {
		visible, _ := devcuda.Visible() // measureGPUs reports its error
		for ordinal := local; ordinal < visible; ordinal += processes {
			parts += 1 + nodebench.NodeParts() + burn
		}
	}
	return parts
}

// measure makes the checks of one of a node's processes. Every process measures its GPUs. The first
// also reads the devices' reports, and measures the host.
func (n *nodeFlags) measure(r *recorder, local, processes int) {
	r.parts += n.expected(local, processes)
	var watch *gpuWatch
	if local == 0 {
		watch = r.watchGPUs()
	}
	if !n.passive() {
		n.measureGPUs(r, local, processes)
	}
	if local != 0 {
		return
	}
	r.report(watch)
	if n.passive() {
		r.unavailable("host", "", "rates", errors.New("a Slurm job runs here, so only the reports of devices were read"))
	} else {
		n.measureHost(r)
	}
}

// measureHost measures the host: its cores and its memory.
func (n *nodeFlags) measureHost(r *recorder) {
	model := fmt.Sprintf("%s, threads: %d", record.Here(false).CPU, n.bench.threads)
	k, err := cpu.New(n.bench.threads)
	if err != nil {
		r.unavailable("host", model, "gemm_f32", err)
		r.unavailable("host", model, "csr_f32", err)
	} else {
		defer k.Close()
	}
	h := nodebench.Host{
		Kernels: k, Device: devcpu.New(n.clock), Threads: n.bench.threads, Seconds: n.seconds, Folder: n.folder, Small: n.small,
		Begin: func(check string) { r.begin("host", model, check) },
		Done:  func(results []nodebench.Result, busy string) { r.results("host", model, results, busy) },
		Watch: r.watch,
	}
	if err := h.Measure(); err != nil {
		r.broken("host", model, "checks", err)
	}
	if n.burn > 0 && k != nil {
		r.burned("host", model, n.burn, h.Burn)
	}
	r.idle()
}

// burned runs a burn-in of duration d and adds its row.
func (r *recorder) burned(device, model string, d time.Duration, burn func(seconds float64) (nodebench.Burned, error)) {
	limit := r.limit
	r.limit += d
	r.begin(device, model, "burn")
	r.limit = limit
	var seconds sync.WaitGroup
	ended := make(chan struct{})
	seconds.Go(func() {
		for range int(d / time.Second) {
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
				r.next()
			}
		}
	})
	b, err := burn(d.Seconds())
	close(ended)
	seconds.Wait()
	if err != nil {
		r.broken(device, model, "burn", err)
		return
	}
	r.add(verdict.Row{Node: r.node, Device: device, Model: model, Check: "burn", Value: float64(b.Products), Unit: "products",
		Status: verdict.Measured, Wrong: b.Wrong, Digest: fmt.Sprintf("%016x", b.Digest)})
}

// measureGPUs measures every GPU whose number is local modulo processes.
func (n *nodeFlags) measureGPUs(r *recorder, local, processes int) {
	if !devcuda.Built {
		if local == 0 {
			if driver, err := devcuda.Probe(); err == nil && len(driver.GPUs) > 0 {
				_, err := sibling()
				r.unavailable("gpus", "", "rates", err)
			}
		}
		return
	}
	visible, err := devcuda.Visible()
	if err != nil {
		r.broken("gpus", "", "count", err)
		return
	}
	for ordinal := local; ordinal < visible; ordinal += processes {
		if err := n.measureGPU(r, ordinal); err != nil {
			r.broken(fmt.Sprintf("gpu%d", ordinal), "", "checks", err)
		}
	}
}

// gpuRounds is the number of rounds whose median is a GPU's figure.
const gpuRounds = 20

func (n *nodeFlags) measureGPU(r *recorder, ordinal int) (err error) {
	name, model := fmt.Sprintf("gpu%d", ordinal), ""
	r.begin(name, model, "start")
	dev, err := devcuda.New(device.NewWall(), ordinal)
	if err != nil {
		return err
	}
	defer dev.Close()
	model = dev.Describe().Name
	f32, err := cuda.New(tensor.F32)
	if err != nil {
		return err
	}
	defer f32.Close()
	bf16, err := cuda.New(tensor.BF16)
	if err != nil {
		return err
	}
	defer bf16.Close()
	g := nodebench.GPU{
		Device: dev, F32: f32, BF16: bf16, Rounds: gpuRounds,
		Emulated: strings.Contains(model, "emulated"), Quick: n.small || strings.Contains(model, "emulated"),
		Done: func(results []nodebench.Result) { r.results(name, model, results, "") },
	}
	if failed := g.MeasureNode(func(part string) { r.begin(name, model, part) }); failed != nil {
		r.broken(name, model, "checks", failed)
	}
	if n.burn > 0 {
		r.burned(name, model, n.burn, g.Burn)
	}
	r.idle()
	return nil
}
