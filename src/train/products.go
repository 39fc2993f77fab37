package train

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"dynmo/src/input"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/record"
	"dynmo/src/replace"
)

// tune has all ranks make dense products by the same algorithms, where the kernels have
// several: those of the checkpoint that the run goes on from, of which bits go on, also that
// it had chosen none; else those that rank 0 measures to be the fastest, if that is wanted.
// Collective.
func (r *Rank) tune(shape model.Config) error {
	k, ok := r.Backend.(kernel.Tuner)
	if !ok {
		return nil
	}
	if was := r.resumed; was.kernels == k.Name() {
		if was.products == nil {
			return nil
		}
		err := Agree(r.World, k.Choose(was.products), false)
		if err == nil {
			r.products = was.products
			return nil
		}
		r.resumed.Otherwise = fmt.Sprintf("%.400s", input.Visible(err.Error()))
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
	if err := Agree(r.World, err, false); err != nil {
		return err
	}
	if text, err = r.World.Bcast(0, text); err != nil {
		return fmt.Errorf("algorithms of products: %w", err)
	}
	r.products = text
	return Agree(r.World, k.Choose(text), false)
}

// Tuned is the kinds of dense products whose algorithms rank 0 measured, and the wall time
// that this took.
type Tuned struct {
	Products int
	Time     time.Duration
}

// Tuned returns what was measured before the first step; zero on other ranks than 0, and where
// nothing was.
func (r *Rank) Tuned() Tuned { return r.tuned }

// keepProducts leaves in the run directory which algorithms make products.
func (r *Rank) keepProducts() error {
	if r.RunDir == "" || r.products == nil || r.World.Rank() != 0 {
		return nil
	}
	return replace.Write(filepath.Join(r.RunDir, record.ProductsFile), func(w io.Writer) error {
		_, err := w.Write(append(r.products, '\n'))
		return err
	})
}
