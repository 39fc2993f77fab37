//go:build cuda && cgo

package launch

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/data"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/train"
)

// TestGPUHasNoRoom: a GPU with less memory than the first step of its ranks needs is one error
// of the settings, with the numbers, on all ranks.
func TestGPUHasNoRoom(t *testing.T) {
	if !cudatest.Emulated(cudatest.New(t)) {
		t.Skip("only emulated GPUs have as little memory as is asked for")
	}
	c := small(t)
	c.Device.Kind, c.Device.Share, c.Parallel.Stages = "cuda", true, 2
	c.Model.Hidden = 1024 // a stage needs more than the kernels do by themselves
	bytes, err := train.Bytes(c)
	expect.OK(t, err)
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	t.Setenv("DYNMO_EMULATE_MEMORY", strconv.FormatInt(slices.Max(bytes)-1, 10))
	err = local.Run(c.Parallel.Stages, func(tr comm.Transport) error {
		_, err := readyRank(c, tr, corpus, &run{})
		return err
	})
	for _, want := range []string{"memory: ranks on host", "GPU-", "wanted more parallel.stages"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
}
