//go:build cuda && cgo

package nccl

import (
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// await waits until c is ready.
func (c communicator) await(deadline time.Time) error {
	for {
		ready, err := c.ready()
		if err != nil || ready {
			return err
		}
		if time.Now().After(deadline) {
			return comm.ErrNoAnswer
		}
		time.Sleep(poll)
	}
}

// TestAlone: what one GPU shows of the library. A communicator of one rank begins, is split,
// carries a group of messages to itself, and is ended or aborted.
func TestAlone(t *testing.T) {
	_, err := Version()
	expect.OK(t, err)
	dev := cudatest.New(t)
	s := dev.NewStream()
	defer s.Close()
	handle := s.(handled).Handle()
	deadline := func() time.Time { return time.Now().Add(3 * time.Minute) }
	opened := func() communicator {
		c, err := begin(commtest.Value(newIdentity()), 0, 1, ctas)
		expect.OK(t, err)
		expect.OK(t, c.await(deadline()))
		return c
	}
	sends := func(c communicator) {
		const bytes = 1 << 20
		from, to := commtest.Value(dev.Alloc(bytes)), commtest.Value(dev.Alloc(bytes))
		defer dev.Free(from)
		defer dev.Free(to)
		data := pattern(bytes)
		s.Copy(from, tensor.From(data))
		expect.OK(t, groupBegin())
		expect.OK(t, c.send(from, 0, handle))
		expect.OK(t, c.recv(to, 0, handle))
		expect.OK(t, c.groupEnd())
		expect.OK(t, c.await(deadline()))
		expect.OK(t, holds(s, to, data))
	}
	ends := func(c communicator) {
		expect.OK(t, c.finish())
		expect.OK(t, c.await(deadline()))
		expect.OK(t, c.destroy())
	}
	c := opened()
	sends(c)
	if splits() {
		part, err := c.split(0, 0, ctas)
		expect.OK(t, err)
		expect.OK(t, c.await(deadline()))
		expect.OK(t, part.await(deadline()))
		sends(part)
		ends(part)
	}
	ends(c)
	expect.OK(t, opened().abort())
}
