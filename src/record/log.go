package record

import (
	"fmt"
	"strings"
)

// Log is one line of a training log, in Megatron-LM's fields, which parsers of
// its logs read.
type Log struct {
	Iteration, Iterations int     // from 1; all there are
	ConsumedSamples       int64   // sequences since the run began
	Seconds               float64 // of an iteration
	FLOPs                 float64 // floating-point operations per second and device; 0 leaves the field out
	LR                    float64
	BatchSize             int     // sequences in the global batch
	Loss                  float64 // nats per token
	GradNorm              float64
	Skipped, NaN          int // iterations so far: without an update; with a loss or gradient not finite
}

// String returns the line, without its end. The loss is never scaled here.
func (l Log) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, " iteration %8d/%8d |", l.Iteration, l.Iterations)
	fmt.Fprintf(&b, " consumed samples: %12d |", l.ConsumedSamples)
	fmt.Fprintf(&b, " elapsed time per iteration (ms): %.1f |", 1e3*l.Seconds)
	if l.FLOPs > 0 {
		fmt.Fprintf(&b, " throughput per GPU (TFLOP/s/GPU): %.1f |", l.FLOPs/1e12)
	}
	fmt.Fprintf(&b, " learning rate: %.6E |", l.LR)
	fmt.Fprintf(&b, " global batch size: %5d |", l.BatchSize)
	fmt.Fprintf(&b, " lm loss: %.6E | loss scale: 1.0 |", l.Loss)
	fmt.Fprintf(&b, " grad norm: %.3f |", l.GradNorm)
	fmt.Fprintf(&b, " number of skipped iterations: %3d |", l.Skipped)
	fmt.Fprintf(&b, " number of nan iterations: %3d |", l.NaN)
	return b.String()
}
