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

// meanings explains errors of the driver. After any of them except the first two the context is
// broken: all later calls fail with the same error.
var meanings = []struct {
	status C.CUresult
	err    error
	text   string
}{
	{C.CUDA_ERROR_OUT_OF_MEMORY, cu.OutOfMemory, "out of memory"},
	{C.CUDA_ERROR_INVALID_CONTEXT, cu.InvalidContext, "this thread is not the one that opened the GPU"},
	{C.CUDA_ERROR_ECC_UNCORRECTABLE, cu.EccUncorrectable, "an uncorrectable ECC error: the GPU's memory is faulty"},
	{C.CUDA_ERROR_NVLINK_UNCORRECTABLE, cu.NvlinkUncorrectable, "an uncorrectable NVLink error: a link between GPUs is faulty"},
	{C.CUDA_ERROR_ILLEGAL_ADDRESS, cu.IllegalAddress, "a kernel used memory that is not its own"},
	{C.CUDA_ERROR_MISALIGNED_ADDRESS, cu.MisalignedAddress, "a kernel used a misaligned address"},
	{C.CUDA_ERROR_ILLEGAL_INSTRUCTION, cu.IllegalInstruction, "a kernel met an illegal instruction"},
	{C.CUDA_ERROR_LAUNCH_TIMEOUT, cu.LaunchTimeout, "a kernel ran for longer than this GPU lets it"},
	{C.CUDA_ERROR_LAUNCH_FAILED, cu.LaunchFailed, "a kernel failed"},
	{C.CUDA_ERROR_HARDWARE_STACK_ERROR, cu.HardwareStackError, "a hardware stack error"},
	{C.CUDA_ERROR_NO_BINARY_FOR_GPU, cu.NoBinaryForGpu, "no code for this GPU's architecture"},
	{C.CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.ContextIsDestroyed, "the context is gone, after an earlier error"},
}

// explain adds the meaning of an error of the driver. It returns nil for nil.
func explain(err error) error {
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return fmt.Errorf("%s (%w)", m.text, err)
		}
	}
	return err
}

// named returns the error for a status other than success.
func named(status C.CUresult) error {
	for _, m := range meanings {
		if m.status == status {
			return m.err
		}
	}
	var name *C.char
	if C.cuGetErrorName(status, &name) != 0 || name == nil {
		return fmt.Errorf("status %d", int(status))
	}
	return errors.New(C.GoString(name))
}
