package record

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"dynmo/src/expect"
)

var logs = []Log{
	{Iteration: 10, Iterations: 500, ConsumedSamples: 80, Seconds: 0.0123456, LR: 1e-3, BatchSize: 8, Loss: 5.5451774, GradNorm: 1.2345},
	{Iteration: 20, Iterations: 500, ConsumedSamples: 160, Seconds: 1.5, FLOPs: 2.34e12, LR: 9.5e-4, BatchSize: 8,
		Loss: math.NaN(), GradNorm: math.Inf(1), Skipped: 1, NaN: 1},
}

// The fields are those that training_log of Megatron-LM (megatron/training)
// prints, in its order.
func TestLog(t *testing.T) {
	expect.Golden(t, "testdata/log.txt", logs[0].String()+"\n"+logs[1].String()+"\n")
}

func TestProgressInAFile(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, false, 5, 2)
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
	p := newProgress(&out, true, 3, 1)
	p.Step(Log{Iteration: 1, Iterations: 3, Loss: 5.5, Seconds: 0.25})
	p.Say("a word")
	if got := out.String(); !strings.Contains(got, "(1/3)") || !strings.Contains(got, "loss 5.5000, 250.0 ms") {
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
	if p := NewProgress(f, 1, 1); p.bar != nil {
		t.Error("a file gets a progress bar")
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	err := Table(&b, []string{"layout", "loss", "ΔL"}, [][]string{{"4 x 1", "2.345678", "0.5"}, {"2 x 2, partition", "2.3", "12.25"}})
	expect.OK(t, err)
	expect.Golden(t, "testdata/table.txt", b.String())
}
