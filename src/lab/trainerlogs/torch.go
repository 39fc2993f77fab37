package trainerlogs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// actionName is a pass of a microbatch in the traces of PyTorch's pipelines, with the virtual stage, the
// pass and the microbatch (torch/distributed/pipelining/schedules.py, _get_profiler_function_name).
var actionName = regexp.MustCompile(`^PP:(\d+)([FBIW])(\d+)$`)

// engine begins the names of operations that PyTorch's threads for the backward run.
const engine = "autograd::engine::evaluate_function"

// action is a pass on the host: the thread that started it, and its window.
type action struct {
	thread            int32
	begin, end        float64
	stage, microbatch int
	pass              byte // F, B, I or W
	busy              float64
}

// launch is a call that starts work on the GPU.
type launch struct {
	correlation int64
	begin       float64
	thread      int32
}

// work is what a GPU did: a kernel, a copy or a fill.
type work struct {
	correlation int64
	begin, end  float64
	action      int32
}

// timeline is the part of a rank's trace that counts: some 30 bytes for each launch and each kernel, which
// have some 300 bytes in the trace.
type timeline struct {
	threads  map[string]int32
	engines  map[int32]bool // threads that run the backward
	actions  []action
	launches []launch
	works    []work
}

// readTraces reads a folder with a trace for each rank.
func readTraces(folder string, s shape) (measured, error) {
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return measured{}, fmt.Errorf("%s: a file, want a folder with the trace of each rank", folder)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return measured{}, err
	}
	m := measured{parts: make([]part, s.Virtual())}
	for v := range m.parts {
		m.parts[v] = part{name: fmt.Sprintf("virtual stage %d", v), layers: s.virtual[v]}
	}
	ranks := make(map[int]string)
	most := -1
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() || !strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".json.gz") {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		t := timeline{threads: make(map[string]int32), engines: make(map[int32]bool)}
		rank, err := eachEvent(path, t.add)
		if err != nil {
			return m, err
		}
		if before := ranks[rank]; rank >= 0 && before != "" {
			return m, fmt.Errorf("%s: rank %d, as %s: two runs or two profiles in one folder, want the traces of one", path, rank, before)
		}
		ranks[rank] = path
		last, err := t.collect(m.parts)
		if err != nil {
			return m, fmt.Errorf("%s: %w", path, err)
		}
		most = max(most, last)
	}
	switch {
	case len(ranks) == 0:
		return m, fmt.Errorf("%s: no file *.json or *.json.gz, want a trace of each rank", folder)
	case s.microbatches > 0 && most+1 != s.microbatches:
		return m, fmt.Errorf("%s: passes of %d microbatches, and --microbatches %d", folder, most+1, s.microbatches)
	}
	for _, p := range m.parts {
		if len(p.samples[forward]) == 0 || len(p.samples[backward]) == 0 {
			return m, fmt.Errorf("%s: %d forwards and %d backwards of %s with kernels: traces of ranks are missing, or were made without the activity CUDA",
				folder, len(p.samples[forward]), len(p.samples[backward]), p.name)
		}
	}
	if !slices.ContainsFunc(m.parts, func(p part) bool { return len(p.samples[weight]) > 0 }) {
		m.notes = append(m.notes, "the schedule has one pass for the backward: half of it counts as for inputs, half as for weights")
	}
	return m, nil
}

// add takes the next event of a trace.
func (t *timeline) add(e traceEvent) error {
	switch e.Category {
	case "user_annotation":
		if !strings.HasPrefix(e.Name, "PP:") {
			return nil
		}
		if strings.HasSuffix(e.Name, "OVERLAP_F_B") {
			return fmt.Errorf("%.60q: kernels of a forward and a backward at once cannot be told apart, want a schedule without overlap", e.Name)
		}
		found := actionName.FindStringSubmatch(e.Name)
		if found == nil {
			return nil // a message, or parameters that are gathered
		}
		stage, err := strconv.Atoi(found[1])
		microbatch, wrong := strconv.Atoi(found[3])
		t.actions = append(t.actions, action{
			thread: t.thread(e), begin: e.Begin, end: e.Begin + e.Duration, stage: stage, microbatch: microbatch, pass: found[2][0],
		})
		if err != nil || wrong != nil {
			return fmt.Errorf("%.60q: want smaller numbers", e.Name)
		}
	case "cpu_op":
		if strings.HasPrefix(e.Name, engine) {
			t.engines[t.thread(e)] = true
		}
	case "cuda_runtime", "cuda_driver":
		if e.Args.Correlation != 0 {
			t.launches = append(t.launches, launch{e.Args.Correlation, e.Begin, t.thread(e)})
		}
	case "kernel", "gpu_memcpy", "gpu_memset":
		t.works = append(t.works, work{correlation: e.Args.Correlation, begin: e.Begin, end: e.Begin + e.Duration})
	}
	return nil
}

// thread returns a number for the thread of an event.
func (t *timeline) thread(e traceEvent) int32 {
	n, ok := t.threads[string(e.Thread)]
	if !ok {
		n = int32(len(t.threads))
		t.threads[string(e.Thread)] = n
	}
	return n
}

// collect adds the GPU's seconds of each pass to the parts of the model. It returns the last microbatch.
func (t *timeline) collect(parts []part) (last int, err error) {
	if len(t.actions) == 0 {
		return 0, errors.New("no range PP:…F… or PP:…B…: PyTorch marks passes since September 2025, in schedules with several stages on a rank; the hook of dynmo help trainers works with any")
	}
	slices.SortFunc(t.actions, func(a, b action) int { return cmp.Compare(a.begin, b.begin) })
	slices.SortFunc(t.launches, func(a, b launch) int { return cmp.Compare(a.correlation, b.correlation) })
	for i := range t.works {
		t.works[i].action = t.actionOf(t.works[i].correlation)
	}
	slices.SortFunc(t.works, func(a, b work) int {
		return cmp.Or(cmp.Compare(a.action, b.action), cmp.Compare(a.begin, b.begin))
	})
	t.measure()
	inputs := make([][]float64, len(parts)) // by virtual stage: seconds of backwards for inputs alone
	before := make([]int, len(parts))
	for v, p := range parts {
		before[v] = len(p.samples[weight])
	}
	for _, a := range t.actions {
		if a.stage >= len(parts) {
			return 0, fmt.Errorf("PP:%d%c%d: the layout has virtual stages 0 to %d", a.stage, a.pass, a.microbatch, len(parts)-1)
		}
		last = max(last, a.microbatch)
		samples := &parts[a.stage].samples
		switch seconds := a.busy / 1e6; {
		case a.pass == 'I':
			inputs[a.stage] = append(inputs[a.stage], seconds)
		case seconds == 0: // its kernels are not in the trace
		case a.pass == 'F':
			samples[forward] = append(samples[forward], seconds)
		case a.pass == 'B':
			samples[backward] = append(samples[backward], seconds)
		default:
			samples[weight] = append(samples[weight], seconds)
		}
	}
	for v := range parts {
		samples := &parts[v].samples
		weights := samples[weight][before[v]:]
		for i := range min(len(inputs[v]), len(weights)) {
			samples[backward] = append(samples[backward], inputs[v][i]+weights[i])
		}
		if v == 0 { // PyTorch does the whole backward of the first stage in its W
			samples[weight] = samples[weight][:before[v]]
		}
	}
	return last, nil
}

// actionOf returns the pass that launched the work of a correlation; -1: none. A forward launches from the
// thread that started it. A backward also launches from the threads of autograd, while its own thread waits.
func (t *timeline) actionOf(correlation int64) int32 {
	i, found := slices.BinarySearchFunc(t.launches, correlation, func(l launch, c int64) int { return cmp.Compare(l.correlation, c) })
	if !found {
		return -1
	}
	l := t.launches[i]
	n, exact := slices.BinarySearchFunc(t.actions, l.begin, func(a action, x float64) int { return cmp.Compare(a.begin, x) })
	if !exact {
		n--
	}
	if n < 0 || t.actions[n].end < l.begin {
		return -1
	}
	if a := t.actions[n]; a.thread == l.thread || a.pass != 'F' && t.engines[l.thread] {
		return int32(n)
	}
	return -1
}

// measure sets the time for which the GPU was busy with each pass. Work on several streams at once counts
// once. The works are in the order of their actions.
func (t *timeline) measure() {
	action, end := int32(-1), 0.0
	for _, w := range t.works {
		if w.action < 0 {
			continue
		}
		if w.action != action {
			action, end = w.action, w.begin
		}
		if w.end > end {
			t.actions[action].busy += w.end - max(w.begin, end)
			end = w.end
		}
	}
}
