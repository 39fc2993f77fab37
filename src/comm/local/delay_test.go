package local

import (
	"runtime"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// A delayed message allocates nothing either, once its tag is known.
func TestDelayedMessagesAllocateNothing(t *testing.T) {
	var per float64
	err := Run(1, func(tr comm.Transport) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		g := comm.New(tr, comm.Options{Clock: device.NewVirtual(), Network: comm.Network{Delay: comm.Delay{Most: 4}}})
		mem := tensor.From(make([]byte, 100))
		var failed error
		per = testing.AllocsPerRun(100, func() {
			out, err := g.Send(0, 1, mem, nil)
			if err != nil {
				failed = err
				return
			}
			in, err := g.Recv(0, 1, mem, nil)
			if err == nil {
				err = in.Wait()
			}
			if err == nil {
				err = out.Wait()
			}
			if err != nil {
				failed = err
			}
		})
		return failed
	})
	expect.OK(t, err)
	if per != 0 {
		t.Errorf("%v allocations in a delayed message", per)
	}
}
