//go:build cuda && cgo

package cuda

/*
#include <cuda.h>
*/
import "C"

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"
)

// meanings says what an error of the driver is in the world. All but the first
// two stay with the context: whatever is asked of it later fails alike.
var meanings = []struct {
	err  error
	text string
}{
	{cu.OutOfMemory, "out of memory"},
	{cu.InvalidContext, "this thread is not the one that opened the GPU"},
	{cu.EccUncorrectable, "an uncorrectable ECC error: the GPU's memory is faulty"},
	{cu.NvlinkUncorrectable, "an uncorrectable NVLink error: a link between GPUs is faulty"},
	{cu.IllegalAddress, "a kernel used memory that is not its own"},
	{cu.MisalignedAddress, "a kernel used a misaligned address"},
	{cu.IllegalInstruction, "a kernel met an illegal instruction"},
	{cu.LaunchTimeout, "a kernel ran for longer than this GPU lets it"},
	{cu.LaunchFailed, "a kernel failed"},
	{cu.HardwareStackError, "a hardware stack error"},
	{cu.NoBinaryForGpu, "no code for this GPU's architecture"},
	{cu.ContextIsDestroyed, "the context is gone, after an earlier error"},
}

// explain adds what an error of the driver means. It returns nil for nil.
func explain(err error) error {
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return fmt.Errorf("%s (%w)", m.text, err)
		}
	}
	return err
}

// named returns the error of a status that is no success.
func named(status C.CUresult) error {
	if status == C.CUDA_ERROR_OUT_OF_MEMORY {
		return cu.OutOfMemory
	}
	var name *C.char
	if C.cuGetErrorName(status, &name) != 0 || name == nil {
		return fmt.Errorf("status %d", int(status))
	}
	return errors.New(C.GoString(name))
}
