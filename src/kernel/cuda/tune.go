//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

const (
	// mostAlgorithms is how many algorithms of a product are measured: cuBLASLt's own order
	// is by a model of its speed, and the fastest is rarely further behind.
	mostAlgorithms = 8
	// tuneRuns is how often a product is made to be timed: in a row, as long as the longest
	// gap between two kernels counts little.
	tuneRuns = 5
	// tuneGain is by how much an algorithm must be faster than one before it: less may be
	// noise.
	tuneGain = 0.98
	// tuneError is how far results of two algorithms may be apart, as a share of the largest:
	// several times the rounding of bf16.
	tuneError = 0.02
	// tuneSample is how many bytes of a result are looked at, at its beginning and its end.
	tuneSample = 64 << 10
)

// choices is the text of Tune.
type choices struct {
	Identity string   `json:"identity"` // of the backend
	Products []choice `json:"products"`
}

// choice is a dynmo_cuda_choice.
type choice struct {
	Kind      [5]int32  `json:"kind"`
	Plain     int32     `json:"plain,omitempty"`
	Algorithm [8]uint64 `json:"algorithm"`
}

// callOf returns the call that makes products of an operation.
func callOf(op kernel.Op) C.int32_t {
	switch op {
	case kernel.MatmulForward:
		return C.DYNMO_CUDA_FORWARD
	case kernel.MatmulForwardAdd:
		return C.DYNMO_CUDA_FORWARD_ADD
	case kernel.MatmulForwardGELU:
		return C.DYNMO_CUDA_FORWARD_GELU
	case kernel.MatmulBackwardInput:
		return C.DYNMO_CUDA_BACKWARD_INPUT
	case kernel.MatmulBackwardGELU:
		return C.DYNMO_CUDA_BACKWARD_GELU
	case kernel.MatmulBackwardWeight:
		return C.DYNMO_CUDA_BACKWARD_WEIGHT
	}
	panic("cuda: not a dense product")
}

// fusedOnly reports whether an operation is one call in bf16 alone.
func fusedOnly(op kernel.Op) bool {
	return op == kernel.MatmulForwardAdd || op == kernel.MatmulForwardGELU || op == kernel.MatmulBackwardGELU
}

// Tune measures products one after the other; see kernel.Tuner. The gradient of a bias is
// summed by the product or apart, whichever is faster: a product without it comes before
// the one with it, so that the latter is measured with the best of either.
func (k *backend) Tune(d device.Device, s device.Stream, products []kernel.Product) ([]byte, error) {
	all := choices{Identity: k.Identity()}
	for _, p := range products {
		if k.DType() == tensor.F32 && fusedOnly(p.Op) {
			continue
		}
		best, ok, err := k.tune(d, s, p)
		if err != nil {
			return nil, fmt.Errorf("%v of %d tokens, %d to %d channels: %w", p.Op, p.N, p.C, p.O, err)
		}
		if ok {
			all.Products = append(all.Products, best)
		}
	}
	return json.Marshal(all)
}

// Choose takes what Tune returned; see kernel.Tuner.
func (k *backend) Choose(text []byte) error {
	var all choices
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("algorithms of products: %w", err)
	}
	if now := k.Identity(); all.Identity != now {
		return fmt.Errorf("algorithms of products are of %q, this is %q", all.Identity, now)
	}
	for _, c := range all.Products {
		if err := k.choose(c); err != nil {
			return fmt.Errorf("algorithm of product %v: %w", c.Kind, err)
		}
	}
	return nil
}

// Fallbacks returns how many products the library had no algorithm for.
func (k *backend) Fallbacks() int64 {
	var count C.int64_t
	C.call_fallbacks(k.table, k.c, &count)
	return int64(count)
}

func (k *backend) choose(c choice) error {
	list := C.dynmo_cuda_choice{plain: C.int32_t(c.Plain)}
	for i, v := range c.Kind {
		list.kind[i] = C.int32_t(v)
	}
	for i, v := range c.Algorithm {
		list.algorithm[i] = C.uint64_t(v)
	}
	return k.failure("choose", C.call_choose(k.table, k.c, &list))
}

// algorithms lists how a product can be made, the library's own choice first.
func (k *backend) algorithms(p kernel.Product) ([]choice, error) {
	var list [mostAlgorithms]C.dynmo_cuda_choice
	var found C.int32_t
	biased := C.int32_t(0)
	if p.Bias {
		biased = 1
	}
	err := k.failure("candidates", C.call_candidates(k.table, k.c, callOf(p.Op), biased, size(p.N), size(p.C), size(p.O), &list[0], mostAlgorithms, &found))
	all := make([]choice, int(found))
	for i := range all {
		c := &all[i]
		c.Plain = int32(list[i].plain)
		for j := range c.Kind {
			c.Kind[j] = int32(list[i].kind[j])
		}
		for j := range c.Algorithm {
			c.Algorithm[j] = uint64(list[i].algorithm[j])
		}
	}
	return all, err
}

// tune measures the algorithms of a product and takes the best; ok is false where the
// library has none.
func (k *backend) tune(d device.Device, s device.Stream, p kernel.Product) (best choice, ok bool, err error) {
	list, err := k.algorithms(p)
	if err != nil || len(list) == 0 {
		return best, false, err
	}
	m, err := newTrial(d, s, p, k.DType())
	defer m.free()
	if err != nil {
		return best, false, err
	}
	fastest, failed := math.Inf(1), error(nil)
	for _, c := range list {
		seconds, err := m.run(k, c)
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case seconds < tuneGain*fastest || !ok:
			best, fastest, ok = c, seconds, true
		}
	}
	if !ok {
		return best, false, failed
	}
	return best, true, k.choose(best)
}

var _ kernel.Tuner = (*backend)(nil)
