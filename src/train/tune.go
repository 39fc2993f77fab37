package train

import (
	"fmt"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/kernel"
	"dynmo/src/model"
)

// Tuned counts the kinds of dense products whose algorithms rank 0 measured. Time is the wall time
// of these measurements.
type Tuned struct {
	Products int
	Time     time.Duration
}

// Tuned returns the algorithms' measurements before the first step. The result is zero on ranks
// other than 0, and if nothing was measured.
func (r *Rank) Tuned() Tuned { return r.tuned }

// tune makes all ranks use the same algorithms for dense products, if the kernels have several. A
// resumed run takes the choice of its checkpoint, even if that is no choice, so that the bits stay
// the same. Another run takes the algorithms that rank 0 measures to be the fastest, if the
// settings ask for it. Collective.
func (r *Rank) tune(shape model.Config) error {
	k, ok := r.Backend.(kernel.Tuner)
	if !ok {
		return nil
	}
	if was, err := checkpoint.ReadState(r.from.State); err == nil && was.Kernels == k.Name() {
		if was.Products == nil {
			return nil
		}
		err := comm.Agree(r.World, k.Choose(was.Products), false)
		if err == nil {
			r.products = was.Products
			return nil
		}
		r.from.Otherwise = brief(err)
	}
	if !r.Config.Device.Tune {
		return nil
	}
	var text []byte
	var err error
	if r.World.Rank() == 0 {
		began, products := time.Now(), model.Products(shape, r.x)
		text, err = k.Tune(r.Device, r.Stream, products)
		r.tuned = Tuned{len(products), time.Since(began)}
		r.Device.Trim()
	}
	if err := comm.Agree(r.World, err, false); err != nil {
		return err
	}
	if text, err = r.World.Bcast(0, text); err != nil {
		return fmt.Errorf("algorithms of products: %w", err)
	}
	r.products = text
	return comm.Agree(r.World, k.Choose(text), false)
}
