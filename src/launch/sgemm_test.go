package launch

import (
	"runtime"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/kernel/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// TestSgemmRateLeavesTheClock: the rate is known for C's kernels alone, and the run's clock stands still.
func TestSgemmRateLeavesTheClock(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock, plain := device.NewVirtual(), config.Default().Device
	if got := sgemmRate(ref.New(tensor.F32), clock, plain); got != 0 {
		t.Errorf("kernels in Go have the rate %v", got)
	}
	if !cpu.Built {
		t.Skip("no C kernels")
	}
	k, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	before := clock.Now()
	rate := sgemmRate(k, clock, plain)
	rounded := plain
	rounded.CPUPrecision = "bf16"
	if got := sgemmRate(k, clock, rounded); got != 0 {
		t.Errorf("products in bfloat16 have the rate %v of float32", got)
	}
	if passed := clock.Now() - before; rate < 1e8 || rate > 1e13 || passed > sgemmSeconds/10 {
		t.Errorf("%g operations per second, and the clock went on by %v s", rate, passed)
	}
}
