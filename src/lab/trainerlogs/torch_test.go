package trainerlogs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"
)

// traceOf builds a trace as Kineto writes it: passes on thread 1, whose backwards launch from thread 2.
type traceOf struct {
	events      []string
	now         float64
	correlation int
}

func (t *traceOf) add(format string, args ...any) {
	t.events = append(t.events, fmt.Sprintf(format, args...))
}

// pass adds a pass whose two kernels keep the GPU busy for so many microseconds. On the host it takes
// three times as long. The kernels overlap on two streams, and run long after their launches.
func (t *traceOf) pass(name string, thread int, busy float64) {
	t.add(`{"ph": "X", "cat": "user_annotation", "name": "PP:%s", "pid": 9, "tid": 1, "ts": %v, "dur": %v, "args": {"External id": 1}}`, name, t.now, 3*busy)
	t.add(`{"ph": "X", "cat": "gpu_user_annotation", "name": "PP:%s", "pid": 0, "tid": 7, "ts": %v, "dur": %v, "args": {"External id": 1}}`, name, t.now, 9*busy)
	for i := range 2 {
		t.correlation++
		at := t.now + float64(i+1)*busy/10
		if thread == 2 {
			t.add(`{"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0", "pid": 9, "tid": 2, "ts": %v, "dur": 1, "args": {"External id": 2, "Fwd thread id": 1}}`, at)
		}
		t.add(`{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": %d, "ts": %v, "dur": 3, "args": {"External id": 3, "cbid": 211, "correlation": %d}}`, thread, at, t.correlation)
		t.add(`{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": %d, "ts": %v, "dur": %v, "args": {"stream": %d, "correlation": %d}}`, 7+i, t.now+1e6+float64(i)*0.4*busy, 0.6*busy, 7+i, t.correlation)
	}
	t.now += 3*busy + 10
}

// noise adds what does not count: a copy that the loader of data launches from a thread of its own inside
// the last pass, a message, and flows.
func (t *traceOf) noise() {
	t.correlation++
	t.add(`{"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 9, "tid": 5, "ts": %v, "dur": 3, "args": {"correlation": %d}}`, t.now-20, t.correlation)
	t.add(`{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 9, "ts": %v, "dur": 5000, "args": {"correlation": %d}}`, t.now, t.correlation)
	t.add(`{"ph": "X", "cat": "user_annotation", "name": "PP:0SEND_F1", "pid": 9, "tid": 1, "ts": %v, "dur": 5}`, t.now)
	t.add(`{"ph": "s", "id": 4, "pid": 9, "tid": 1, "ts": %v, "cat": "ac2g", "name": "ac2g"}`, t.now)
	t.add(`{"ph": "X", "cat": "Trace", "ts": 1, "dur": 129749, "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}`)
	t.add(`{"name": "process_name", "ph": "M", "ts": 1, "pid": 9, "tid": 0, "args": "text"}`)
	t.now += 10
}

func (t *traceOf) text(rank int) string {
	return fmt.Sprintf(`{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "distributedInfo": {"backend": "nccl", "rank": %d, "world_size": 2}, "traceEvents": [
%s], "traceName": "x.json"}`, rank, strings.Join(t.events, ",\n"))
}

// folderOf writes traces of two ranks with two virtual stages each, in a loop. Layers have the known
// seconds; the backward is in two passes where split, of which W takes three tenths.
func folderOf(t *testing.T, layout string, microbatches int, split bool) string {
	t.Helper()
	s, err := Run{Layout: layout, Stages: 2}.shape()
	expect.OK(t, err)
	folder := t.TempDir()
	for rank := range 2 {
		trace := traceOf{now: 1740461679470000}
		for _, stage := range []int{rank, rank + 2} {
			for m := range microbatches {
				f, b := 0.0, 0.0
				for k, n := range s.virtual[stage] {
					f, b = f+1e6*float64(n)*known[k][0], b+1e6*float64(n)*known[k][1]
				}
				trace.pass(fmt.Sprintf("%dF%d", stage, m), 1, f)
				trace.noise()
				switch {
				case !split:
					trace.pass(fmt.Sprintf("%dB%d", stage, m), 2, b)
				case stage == 0: // PyTorch's first stage does everything in W
					trace.add(`{"ph": "X", "cat": "user_annotation", "name": "PP:0I%d", "pid": 9, "tid": 1, "ts": %v, "dur": 2}`, m, trace.now)
					trace.now += 5
					trace.pass(fmt.Sprintf("%dW%d", stage, m), 2, b)
				default:
					trace.pass(fmt.Sprintf("%dI%d", stage, m), 2, 0.7*b)
					trace.pass(fmt.Sprintf("%dW%d", stage, m), 2, 0.3*b)
				}
			}
		}
		var b bytes.Buffer
		name := fmt.Sprintf("rank%d_trace.json", rank)
		if b.WriteString(trace.text(rank)); rank == 1 {
			plain := b.Bytes()
			b = bytes.Buffer{}
			z := gzip.NewWriter(&b)
			_, err := z.Write(plain)
			expect.OK(t, err)
			expect.OK(t, z.Close())
			name += ".gz"
		}
		expect.OK(t, os.WriteFile(filepath.Join(folder, name), b.Bytes(), 0o644))
	}
	return folder
}

func TestTraces(t *testing.T) {
	for _, c := range []struct {
		layout string
		split  bool
		weight [kinds]float64 // share of the backward
	}{
		{"3,4,4,3", false, [kinds]float64{1, 0.5, 0, 0.5}},
		{"Et*3|t*4|t*4|tttL", true, [kinds]float64{1, 0.3, 0, 0.3}},
	} {
		out, err := read("torch-trace", folderOf(t, c.layout, 4, c.split), Run{Layout: c.layout, Stages: 2, Microbatches: 4})
		expect.OK(t, err)
		if len(out.Kinds) != 3 || len(out.Table.Layers) != 16 || (len(out.Notes) == 0) != c.split {
			t.Errorf("%+v", out)
		}
		for _, k := range out.Kinds {
			i := slices.Index(names[:], k.Name)
			want := [3]float64{known[i][0], known[i][1] * (1 - c.weight[i]), known[i][1] * c.weight[i]}
			for pass, got := range []float64{k.Seconds.Forward, k.Seconds.Input, k.Seconds.Weight} {
				if math.Abs(got-want[pass]) > 1e-5 {
					t.Errorf("split %v: %s: pass %d takes %v s, want %v", c.split, k.Name, pass, got, want[pass])
				}
			}
		}
	}
}

func TestTracesAreRefused(t *testing.T) {
	const layout = "3,4,4,3"
	change := func(from, to string) func(string) string {
		return func(text string) string { return strings.ReplaceAll(text, from, to) }
	}
	for _, c := range []struct {
		name   string
		run    Run
		change func(text string) string // of rank 0's trace
		want   string
	}{
		{"cut in the middle", Run{}, func(text string) string { return text[:len(text)/2] }, "rank0_trace.json: cut off in the middle, want a whole trace"},
		{"a rank is missing", Run{}, func(string) string { return "" }, "0 forwards and 0 backwards of virtual stage 0 with kernels: traces of ranks are missing"},
		{"two runs", Run{}, change(`"rank": 0`, `"rank": 1`), "rank 1, as"},
		{"no CUDA", Run{}, change(`"cat": "kernel"`, `"cat": "cpu_op"`), "made without the activity CUDA"},
		{"no ranges", Run{}, change("PP:", "step "), "no range PP:…F… or PP:…B…"},
		{"overlap", Run{}, change("PP:0F0", "PP:(0F0;1B0)OVERLAP_F_B"), "want a schedule without overlap"},
		{"other microbatches", Run{Microbatches: 8}, change("", ""), "passes of 4 microbatches, and --microbatches 8"},
		{"other stages", Run{Layout: "6,8"}, change("", ""), "the layout has virtual stages 0 to 1"},
		{"no trace", Run{}, func(string) string { return "[1, 2]" }, `"[", want "{": a trace of PyTorch's profiler`},
		{"a stage too far", Run{}, change("PP:0F0", "PP:99999999999999999999F0"), `"PP:99999999999999999999F0": want smaller numbers`},
		{"no events", Run{}, func(string) string { return "{}" }, "no traceEvents"},
		{"no JSON", Run{}, func(string) string { return "{\"traceEvents\": [x]}" }, "no JSON at byte 1"},
		{"a huge event", Run{}, func(string) string { return `{"traceEvents": [{"name": "` + strings.Repeat("x", mostEvent+1<<20) }, "an event of more than 64 MiB"},
	} {
		folder := folderOf(t, layout, 4, false)
		path := filepath.Join(folder, "rank0_trace.json")
		text, err := os.ReadFile(path)
		expect.OK(t, err)
		if changed := c.change(string(text)); changed == "" {
			expect.OK(t, os.Remove(path))
		} else {
			expect.OK(t, os.WriteFile(path, []byte(changed), 0o644))
		}
		r := c.run
		if r.Layout == "" {
			r.Layout = layout
		}
		_, err = read("torch-trace", folder, r)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %.300v, want %q", c.name, err, c.want)
		}
	}
	for path, want := range map[string]string{"absent": "no such file", t.TempDir(): "no file *.json", written(t, "{}"): "a file, want a folder with the trace of each rank"} {
		if _, err := read("torch-trace", path, Run{Layout: layout}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// endless is a trace of a length that no file in a test has, made as it is read.
type endless struct {
	head, event, tail []byte
	left              int
	rest              []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		switch {
		case e.head != nil:
			e.rest, e.head = e.head, nil
		case e.left > 0:
			e.rest = e.event
			e.left--
		default:
			e.rest, e.tail = e.tail, nil
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// TestLongTracesAreStreamed: memory does not grow with the length of a trace.
func TestLongTracesAreStreamed(t *testing.T) {
	common := `{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 9, "tid": 1, "ts": 12.5, "dur": 3.5, "args": {"External id": 5, "Input Dims": [[4096, 4096], [4096, 4096], []], "Input type": ["float", "float", "Scalar"]}},` + "\n"
	launch := `{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 1, "ts": 12.5, "dur": 3.5, "args": {"External id": 5, "cbid": 211, "correlation": 5}},` + "\n"
	event := []byte(strings.Repeat(common, 9) + launch)
	const size = 128 << 20
	e := &endless{head: []byte(`{"traceEvents": [`), event: event, tail: []byte(`{"ph": "X"}]}`), left: size / len(event)}
	a := &allowance{Reader: e, left: mostEvent}
	events, most := 0, uint64(0)
	runtime.GC()
	start := time.Now()
	_, err := a.events(func(traceEvent) error {
		if events++; events%1000 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
		}
		return nil
	})
	expect.OK(t, err)
	t.Logf("%d events, %.0f MB/s, at most %d MiB", events, size/1e6/time.Since(start).Seconds(), most>>20)
	if events != size/len(event) || most > 32<<20 {
		t.Errorf("%d events, want %d; %d bytes of memory", events, size/len(event), most)
	}
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte(`{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "tid": 1, "ts": 1, "dur": 2}], "distributedInfo": {"rank": 1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			t.Skip()
		}
		a := &allowance{Reader: bytes.NewReader(text), left: mostEvent}
		line := timeline{threads: make(map[string]int32), engines: make(map[int32]bool)}
		if _, err := a.events(line.add); err == nil {
			_, _ = line.collect(make([]part, 2))
		}
	})
}
