// Package sample continues a text with a trained model. In come the weights of a model, from any
// file, and the tokens of a prompt. Out come the logits of the next token, and tokens chosen from
// them, one by one.
//
// The layers are those of package model, with a model.Text. They compute on the CPU in float32, without
// ranks or memory for gradients. The text keeps the keys and values of all tokens so far. So one more
// token reads every weight once; of a mixture it reads only the token's MLPs. This is a product of a
// matrix and a vector, limited by the rate of memory. The number of threads changes no bit.
package sample

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Model has the weights of a model. Several sessions may use it, but not at the same time.
type Model struct {
	Config model.Config

	stage   *model.Stage
	device  device.Device
	kernels kernel.Backend
	threads int
}

// New returns the model of a shape. read returns the values of each weight, and is called on
// `threads` goroutines at once (at least one). k, float32 in host memory, does the arithmetic; nil: the
// reference in Go does. Errors are those of read, of memory, or of a model that cannot continue a text.
// Close frees the weights.
func New(c model.Config, threads int, k kernel.Backend, read func(model.Weight) ([]float32, error)) (*Model, error) {
	if err := Knows(c); err != nil {
		return nil, err
	}
	if k == nil {
		k = ref.New(tensor.F32)
	}
	m := &Model{Config: c.Texts(), device: devcpu.New(device.NewWall()), kernels: k, threads: threads}
	var err error
	if m.stage, err = model.ForwardStage(m.Config, m.device, tensor.F32); err != nil {
		return nil, err
	}
	owners := m.owners()
	var group errgroup.Group
	group.SetLimit(threads)
	weights := append(m.Config.Weights(), m.Config.PrivateWeights()...)
	slices.SortStableFunc(weights, func(a, b model.Weight) int { return cmp.Compare(a.Name, b.Name) }) // a file's layers are read one by one
	for _, w := range weights {
		group.Go(func() error {
			values, err := read(w)
			copy(tensor.Of[float32](owners[w.Name].W), values)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// owners returns the parameters that have memory of their own, by name. All borrowed ones use the
// memory of their owner.
func (m *Model) owners() map[string]*model.Param {
	owners := make(map[string]*model.Param)
	for _, l := range m.stage.Layers {
		for _, p := range l.Params() {
			if p.Borrowed() {
				p.W = owners[p.Weight].W
			} else {
				owners[p.Weight] = p
			}
		}
	}
	return owners
}

// Close frees the weights.
func (m *Model) Close() { m.stage.Free() }

// Knows returns an error unless this package continues texts with models of a shape.
func Knows(c model.Config) error {
	if known := model.SampledFamilies(); !slices.Contains(known, c.FamilyName()) {
		return fmt.Errorf("a model of family %s, want %s: sample knows no other", c.Family, strings.Join(known, " or "))
	}
	return nil
}

// Notes describes the differences between sampling and training, kind by kind.
func Notes(c model.Config) (list []string) {
	for _, kind := range c.Kinds {
		if n, ok := kind.(interface{ Notes() []string }); ok {
			list = append(list, n.Notes()...)
		}
	}
	return list
}

// TokenBytes returns the bytes of weights that one more token reads. Embeddings of other tokens and
// positions do not count, nor do MLPs of a mixture that the token does not go to.
func (m *Model) TokenBytes() int64 {
	c := m.Config
	n := c.Active() + int64(c.Hidden)
	if !c.Tied {
		n -= int64(c.Vocab * c.Hidden)
	}
	if !c.Rope.Turns() {
		n -= int64((c.Sequence - 1) * c.Hidden)
	}
	return 4 * n
}
