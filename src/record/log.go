package record

import (
	"fmt"
	"strings"
	"time"

	"dynmo/src/dynamic"
)

// Log is one line of a training log. Its first fields are those of Megatron-LM, so that parsers of
// its logs can read them. More fields follow.
type Log struct {
	Iteration, Iterations int     // Iteration counts from 1; Iterations is the total
	ConsumedSamples       int64   // sequences since the run began, including those of this iteration
	Seconds               float64 // of an iteration
	FLOPs                 float64 // floating-point operations of the dense model per second and rank (see ModelFLOPs); 0 leaves the field out
	GPU                   bool    // a rank has a GPU
	Peak                  float64 // operations per second of a rank's GPU by its data sheet, or of rank 0's float32 product; 0: not known
	LR                    float64
	BatchSize             int     // sequences in the global batch
	Loss                  float64 // nats per token
	Replayed              bool    // there is no loss
	GradNorm              float64
	Skipped, NaN          int // iterations so far without an update; with a loss or gradient that is not finite

	TokensPerSecond float64
	Clock           string   // clock of Seconds and TokensPerSecond; "" leaves out the fields after those of Megatron-LM
	Left            float64  // real seconds until the last iteration
	Model           []string // changes of the model so far, in words
}

// loss returns the loss for the progress bar.
func (l Log) loss() string {
	if l.Replayed {
		return "replayed: no loss"
	}
	return fmt.Sprintf("loss %.4f", l.Loss)
}

// String returns the line without a newline. The loss is not scaled.
func (l Log) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, " iteration %8d/%8d |", l.Iteration, l.Iterations)
	fmt.Fprintf(&b, " consumed samples: %12d |", l.ConsumedSamples)
	fmt.Fprintf(&b, " elapsed time per iteration (ms): %.1f |", 1e3*l.Seconds)
	switch {
	case l.FLOPs > 0 && l.GPU:
		fmt.Fprintf(&b, " throughput per GPU (TFLOP/s/GPU): %.1f |", l.FLOPs/1e12)
	case l.FLOPs > 0:
		fmt.Fprintf(&b, " throughput per rank (TFLOP/s): %s |", dynamic.Significant(l.FLOPs/1e12))
	}
	fmt.Fprintf(&b, " learning rate: %.6E |", l.LR)
	fmt.Fprintf(&b, " global batch size: %5d |", l.BatchSize)
	if l.Replayed {
		b.WriteString(" replayed: no loss |")
	} else {
		fmt.Fprintf(&b, " lm loss: %.6E | loss scale: 1.0 |", l.Loss)
	}
	fmt.Fprintf(&b, " grad norm: %.3f |", l.GradNorm)
	fmt.Fprintf(&b, " number of skipped iterations: %3d |", l.Skipped)
	fmt.Fprintf(&b, " number of nan iterations: %3d |", l.NaN)
	if l.Clock != "" {
		fmt.Fprintf(&b, " tokens per second: %.0f | clock: %s | time left: %s |", l.TokensPerSecond, l.Clock, Duration(l.Left))
	}
	if l.FLOPs > 0 && l.Peak > 0 {
		fmt.Fprintf(&b, " %s: %.1f %% |", map[bool]string{true: "MFU", false: "share of sgemm"}[l.GPU], 100*l.FLOPs/l.Peak)
	}
	for _, text := range l.Model {
		fmt.Fprintf(&b, " %s |", text)
	}
	return b.String()
}

// Duration formats seconds for users: 1h2m3s, 1m23s, 12.3s, 4.56ms. Go's time.Duration has no room
// for more than 292 years.
func Duration(seconds float64) string {
	if years := seconds / (365.25 * 24 * 3600); years >= 100 {
		return fmt.Sprintf("%.3g years", years)
	}
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	digits := time.Nanosecond // three digits
	for d >= 1000*digits {
		digits *= 10
	}
	return d.Round(digits).String()
}

// Bytes formats a number of bytes in units of powers of 1000.
func Bytes(n int64) string {
	x, unit := float64(n), "bytes"
	for _, larger := range []string{"kB", "MB", "GB", "TB"} {
		if x < 1000 {
			break
		}
		x, unit = x/1000, larger
	}
	return fmt.Sprintf("%.3g %s", x, unit)
}

// recentSteps is the number of iterations whose mean gives the time left. It is small enough to
// follow a model that becomes cheaper, and large enough to even out a slow iteration.
const recentSteps = 20

// TimeLeft predicts when a run ends, in real time.
type TimeLeft struct {
	last    time.Time
	steps   float64 // at most recentSteps
	seconds float64 // moving average of the time of an iteration
}

// NewTimeLeft returns the TimeLeft of a run that begins now.
func NewTimeLeft() *TimeLeft { return &TimeLeft{last: time.Now()} }

// Step counts an iteration that has ended. It returns the expected seconds of `more` iterations.
func (t *TimeLeft) Step(more int) float64 {
	now := time.Now()
	t.steps = min(t.steps+1, recentSteps)
	t.seconds += (now.Sub(t.last).Seconds() - t.seconds) / t.steps
	t.last = now
	return float64(more) * t.seconds
}
