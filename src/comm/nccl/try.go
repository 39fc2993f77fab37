//go:build cgo

package nccl

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// tryFor is how long one step of Try may take: the first has to find out which
// network there is.
const tryFor = 20 * time.Second

// Try returns an error unless NCCL works on a GPU, whose context must be current.
// It makes a communicator of one rank, splits it where the library can, sends src
// to itself into dst, of the same length, on the part, and aborts both.
func Try(d device.Device, dst, src tensor.Mem) error {
	if _, err := Version(); err != nil {
		return err
	}
	id, err := newIdentity()
	if err != nil {
		return fmt.Errorf("nccl: identity: %w", err)
	}
	world, err := begin(id, 0, 1)
	if err != nil {
		return fmt.Errorf("nccl: begin: %w", err)
	}
	if err = world.await(time.Now().Add(tryFor)); err == nil {
		err = world.try(d, dst, src)
	}
	if err = errors.Join(err, world.abort()); err != nil {
		return fmt.Errorf("nccl: %w", err)
	}
	return nil
}

// try splits the communicator, where it can be split, and sends on the part.
func (c communicator) try(d device.Device, dst, src tensor.Mem) error {
	part, err := c.split(0, 0)
	if errors.Is(err, errors.ErrUnsupported) {
		return c.exchange(d, dst, src)
	}
	if err == nil {
		err = c.await(time.Now().Add(tryFor))
	}
	if err != nil {
		return fmt.Errorf("split: %w", err)
	}
	return errors.Join(part.exchange(d, dst, src), part.abort())
}

// exchange sends src to this rank, the only one, and waits for it.
func (c communicator) exchange(d device.Device, dst, src tensor.Mem) error {
	deadline := time.Now().Add(tryFor)
	if err := c.await(deadline); err != nil {
		return fmt.Errorf("begin the part: %w", err)
	}
	stream := d.NewStream()
	defer stream.Close()
	err := c.self(dst, src, 0, stream.(handled).Handle())
	if err == nil {
		err = c.await(deadline)
	}
	if err == nil {
		err = stream.Sync()
	}
	if err != nil {
		return fmt.Errorf("send %d bytes to itself: %w", src.Bytes, err)
	}
	return nil
}
