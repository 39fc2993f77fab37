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

// TestGPUHasNoRoom: GPUs with less memory than the first step needs are one error of the
// settings, with the numbers, on all ranks.
func TestGPUHasNoRoom(t *testing.T) {
	if !cudatest.Emulated(cudatest.New(t)) {
		t.Skip("only emulated GPUs have as little memory as is asked for")
	}
	c := small(t)
	c.Device.Kind, c.Comm.Carrier, c.Parallel.Stages = "cuda", "host", 2
	bytes, err := train.Bytes(c)
	expect.OK(t, err)
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	t.Setenv("DYNMO_EMULATE_DEVICES", strconv.Itoa(c.Parallel.Stages))
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
