//go:build cgo

package nccl

// #include "../../../csrc/include/dynmo_nccl.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// openLimit is how long a communicator may take to begin, and each of its calls to end.
const openLimit = 60 * time.Second

// Allreduce measures NCCL's own allreduce, as nccl-tests does: sums of vectors of float32 on all ranks,
// out of place, with the CTAs that NCCL chooses. lengths has the elements of the vectors, the longest
// last. Allreduce repeats each sum times times after a few to warm up. For each length it returns the
// seconds of each sum on the GPU's stream, and the number of wrong elements in the last result. share
// gives every rank the bytes that rank 0 passes to it. The calling goroutine is locked to its thread and
// owns d. Collective.
func Allreduce(share func([]byte) ([]byte, error), rank, ranks int, d device.Device, lengths []int, times int) (seconds [][]float64, wrong []int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var id identity
	if rank == 0 {
		if _, err = version(); err == nil {
			id, err = newIdentity()
		}
	}
	first := id[:]
	if err != nil {
		first = nil
	}
	shared, failed := share(first)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("nccl: allreduce: %w", err)
	case failed != nil:
		return nil, nil, failed
	case len(shared) != len(id):
		return nil, nil, fmt.Errorf("nccl: allreduce: rank 0 has no NCCL")
	}
	if _, err := version(); err != nil {
		return nil, nil, fmt.Errorf("nccl: allreduce: %w", err)
	}
	k, err := begin(identity(shared), rank, ranks, math.MinInt32)
	if err == nil {
		err = k.wait()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("nccl: allreduce: begin: %w", err)
	}
	if seconds, wrong, err = k.allreduces(rank, ranks, d, lengths, times); err == nil {
		if err = k.finish(); err == nil {
			err = k.wait()
		}
		if err == nil {
			err = k.destroy()
		}
	} else {
		_ = k.abort() // the error that led here is the one to tell
	}
	if err != nil {
		return nil, nil, fmt.Errorf("nccl: allreduce: %w", err)
	}
	return seconds, wrong, nil
}

// wait returns once the last call is done.
func (c communicator) wait() error {
	for begin := time.Now(); ; {
		ready, err := c.ready()
		switch waited := time.Since(begin); {
		case err != nil || ready:
			return err
		case waited > openLimit:
			return fmt.Errorf("not done after %v", openLimit)
		case waited > patience:
			time.Sleep(poll)
		}
	}
}

// unmeasured is how many allreduces make connections and raise clocks.
const unmeasured = 5

func (c communicator) allreduces(rank, ranks int, d device.Device, lengths []int, times int) (seconds [][]float64, wrong []int, err error) {
	stream := d.NewStream()
	defer stream.Close()
	most := 4 * int64(lengths[len(lengths)-1])
	in, err := d.Alloc(most)
	if err != nil {
		return nil, nil, err
	}
	defer d.Free(in)
	out, err := d.Alloc(most)
	if err != nil {
		return nil, nil, err
	}
	defer d.Free(out)
	host, err := d.AllocHost(most)
	if err != nil {
		return nil, nil, err
	}
	defer d.FreeHost(host)
	for _, n := range lengths {
		x := tensor.Of[float32](host)[:n]
		for i := range x {
			x[i] = float32(rank + i%16)
		}
		stream.Copy(in, host)
		list, err := c.timed(stream, in, out, n, times)
		if err != nil {
			return nil, nil, err
		}
		stream.Copy(host, out)
		if err := stream.Sync(); err != nil {
			return nil, nil, err
		}
		bad := 0
		for i, got := range x {
			if got != float32(ranks*(ranks-1)/2+ranks*(i%16)) { // whole numbers below 2^24: sums are exact
				bad++
			}
		}
		seconds, wrong = append(seconds, list), append(wrong, bad)
	}
	return seconds, wrong, nil
}

// timed sums n elements again and again, and returns the seconds of each sum after the unmeasured ones.
func (c communicator) timed(stream device.Stream, in, out tensor.Mem, n, times int) (seconds []float64, err error) {
	var ends []device.Event
	for range unmeasured + times {
		status := C.dynmo_nccl_allreduce(c.k, on(in), on(out), C.int64_t(n), stream.(handled).Handle())
		if err := check(c.k, status); err != nil {
			return nil, err
		}
		if err := c.wait(); err != nil {
			return nil, err
		}
		ends = append(ends, stream.Record(nil))
	}
	if err := stream.Sync(); err != nil {
		return nil, err
	}
	for i := unmeasured; i < len(ends); i++ {
		seconds = append(seconds, ends[i].Seconds()-ends[i-1].Seconds())
	}
	return seconds, nil
}
