package record

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dynmo/src/expect"
)

var logs = []Log{
	{Iteration: 10, Iterations: 500, ConsumedSamples: 80, Seconds: 0.0123456, LR: 1e-3, BatchSize: 8, Loss: 5.5451774, GradNorm: 1.2345},
	{Iteration: 20, Iterations: 500, ConsumedSamples: 160, Seconds: 1.5, FLOPs: 2.34e12, GPU: true, LR: 9.5e-4, BatchSize: 8,
		Loss: math.NaN(), GradNorm: math.Inf(1), Skipped: 1, NaN: 1},
	{Iteration: 25, Iterations: 500, ConsumedSamples: 200, Seconds: 1.5, FLOPs: 378e12, GPU: true, Peak: 989.4e12, LR: 9.5e-4, BatchSize: 8,
		Loss: 5.4, GradNorm: 1, TokensPerSecond: 12345.67, Clock: "wall", Left: 83.001},
	{Iteration: 30, Iterations: 500, ConsumedSamples: 240, Seconds: 0.5, FLOPs: 0.0123e12, Peak: 0.02e12, LR: 9e-4, BatchSize: 8, Loss: 5.4, GradNorm: 1,
		TokensPerSecond: 12345.67, Clock: "virtual", Left: 83.001,
		Model: []string{"frozen layers: 3 of 14", "tokens in blocks: 69.8 %"}},
}

// The fields are those that training_log of Megatron-LM (megatron/training) prints, in its order.
// More fields follow them.
func TestLog(t *testing.T) {
	var b strings.Builder
	for _, l := range logs {
		b.WriteString(l.String() + "\n")
	}
	expect.Golden(t, "testdata/log.txt", b.String())
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    string
	}{
		{0, "0s"}, {1e-9, "1ns"}, {0.000642133, "642µs"}, {0.0018624, "1.86ms"}, {0.174, "174ms"}, {0.9999, "1s"},
		{12.345, "12.3s"}, {59.96, "1m0s"}, {83.4, "1m23s"}, {3723.4, "1h2m3s"}, {100 * 3600, "100h0m0s"}, {1e10, "317 years"}, {1e300, "3.17e+292 years"},
	} {
		if got := Duration(c.seconds); got != c.want {
			t.Errorf("%v s: %s, want %s", c.seconds, got, c.want)
		}
	}
	for _, c := range []struct {
		bytes int64
		want  string
	}{{0, "0 bytes"}, {999, "999 bytes"}, {1000, "1 kB"}, {1234567, "1.23 MB"}, {5e9, "5 GB"}, {7e15, "7e+03 TB"}} {
		if got := Bytes(c.bytes); got != c.want {
			t.Errorf("%d bytes: %s, want %s", c.bytes, got, c.want)
		}
	}
}

// The time left follows the pace of the latest iterations.
func TestTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := NewTimeLeft()
		step := func(seconds float64, more int) float64 {
			time.Sleep(time.Duration(seconds * float64(time.Second)))
			return left.Step(more)
		}
		if got := step(2, 10); got != 20 {
			t.Errorf("after one iteration of 2 s: %v s left for 10", got)
		}
		for range 10 * recentSteps {
			step(1, 5)
		}
		if got := step(1, 7); math.Abs(got-7) > 1e-3 {
			t.Errorf("after many iterations of 1 s: %v s left for 7", got)
		}
		if got := step(1, 0); got != 0 {
			t.Errorf("%v s left for none", got)
		}
	})
}

func TestProgressInAFile(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, false, 2)
	var want strings.Builder
	p.Say("a word\n")
	want.WriteString("a word\n")
	for i := 1; i <= 5; i++ {
		l := Log{Iteration: i, Iterations: 5}
		p.Step(l)
		if i == 2 || i == 4 || i == 5 { // every second one, and the last
			want.WriteString(l.String() + "\n")
		}
	}
	p.Close()
	if out.String() != want.String() {
		t.Errorf("got\n%swant\n%s", &out, &want)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, true, 1)
	p.Step(Log{Iteration: 1, Iterations: 3, Loss: 5.5, Seconds: 0.25})
	p.Say("a word")
	if got := out.String(); !strings.Contains(got, "(1/3, ") || !strings.Contains(got, "loss 5.5000, 250.0 ms") {
		t.Errorf("the bar shows neither count nor loss: %q", got)
	}
	if !strings.Contains(out.String(), "\ra word\n") {
		t.Errorf("the word does not stand on a line of its own: %q", out.String())
	}
	if strings.Contains(out.String(), " iteration ") {
		t.Errorf("a log line beside the bar: %q", out.String())
	}
	for i := 2; i <= 3; i++ {
		p.Step(Log{Iteration: i, Iterations: 3})
	}
	out.Reset()
	p.Say("done")
	p.Close()
	if out.String() != "done\n" && !strings.HasSuffix(out.String(), "\rdone\n") {
		t.Errorf("after the last iteration: %q", out.String())
	}
}

func TestNewProgressAsksWhetherOutIsATerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "log")
	expect.OK(t, err)
	defer f.Close()
	if p := NewProgress(f, 1); p.bar != nil {
		t.Error("a file gets a progress bar")
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	err := Table(&b, []string{"layout", "loss", "ΔL"}, [][]string{{"4 x 1", "2.345678", "0.5"}, {"2 x 2, partition", "2.3", "12.25"}})
	expect.OK(t, err)
	expect.Golden(t, "testdata/table.txt", b.String())
}

// TestStragglerLog: a rank is slow in every second report, as ranks that share cores are. It gets
// a few lines, then none until it has been quiet for long.
func TestStragglerLog(t *testing.T) {
	var l stragglerLog
	flaps := func(from, to int) (lines []string) {
		for step := from; step < to; step += 10 {
			if line := l.line(step, Straggler{Rank: 2, Host: "node1", Score: 0.5, Over: step%20 != 0}); line != "" {
				lines = append(lines, line)
			}
		}
		return lines
	}
	first := flaps(0, 5000)
	if len(first) != stragglerLines {
		t.Fatalf("%d lines of 500 changes, want %d: %q", len(first), stragglerLines, first)
	}
	for i, line := range first {
		if last := i == len(first)-1; strings.Contains(line, "only in events.jsonl") != last {
			t.Errorf("line %d: %s", i, line)
		}
	}
	again := flaps(5000+stragglerPause, 5020+stragglerPause)
	if len(again) != 2 || !strings.Contains(again[0], "rank 2 (host node1) is a straggler: 2.0x slower") {
		t.Errorf("after %d steps without a change: %q, want its two changes", stragglerPause, again)
	}
}
