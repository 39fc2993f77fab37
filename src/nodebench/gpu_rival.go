package nodebench

import (
	"errors"
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// rivals is a backend with products of NVIDIA's libraries to compare with. Each product is prepared
// in a slot for fixed operands, then run any number of times.
type rivals interface {
	PrepareSpMM(s device.Stream, slot int, byRows bool, algorithm int, out, inp tensor.Mem, w kernel.CSR, n int) error
	PrepareSDDMM(s device.Stream, slot int, byRows bool, dvalues, dout, inp tensor.Mem, w kernel.CSR, n int) error
	PrepareTF32(s device.Stream, slot int, out, inp, weight tensor.Mem, n, c, o int) error
	RunRival(s device.Stream, slot int)
	ForgetRivals() error
}

// algorithms are the names of cuSPARSE's algorithms for compressed rows, by number.
var algorithms = []string{"default", "ALG1", "ALG2", "ALG3"}

// Slots 0 to 7 are for SpMM: by columns and by rows for each algorithm. Other slots follow.
const (
	slotSDDMM = 8
	slotTF32  = 10
)

// contender is a rival product that is ready to run.
type contender struct {
	name, ratio, unit string
	reach             float64
	ours              int     // index of our call to compare with
	prepared          float64 // seconds of preparing
	run               func()
	wrong             int // wrong elements
}

// rivals returns the rival products to compare with. On a GPU it is an error if cuSPARSE has no
// product at all, but other figures are kept. A stand-in for a GPU has no cuSPARSE.
func (p *product) rivals(w kernel.CSR) (list []contender) {
	k, ok := p.k.(rivals)
	if !ok {
		return nil
	}
	if p.err = p.stream.Sync(); p.err != nil {
		return nil
	}
	add := func(c contender, err error) {
		if err != nil {
			p.lacking = fmt.Errorf("%s at %d %%: %s: %w", p.k.DType(), p.percent, c.name, err)
			return
		}
		list = append(list, c)
	}
	if !p.Emulated {
		add(p.spmmRival(k, w))
	}
	if p.k.DType() == tensor.F32 { // cuSPARSE cannot add products of bf16 to float32 sums
		if !p.Emulated {
			add(p.sddmmRival(k, w))
		}
		add(p.denseRival(k))
	}
	return list
}

// forget frees the memory of all rivals.
func (p *product) forget() {
	if k, ok := p.k.(rivals); ok {
		p.err = errors.Join(p.err, p.stream.Sync(), k.ForgetRivals())
	}
}

// ready prepares a rival and runs it once. It returns the seconds of preparing.
func (p *product) ready(k rivals, slot int, prepare func() error) (seconds float64, err error) {
	clock := p.Device.Clock()
	begin := clock.Now()
	if err := errors.Join(prepare(), p.stream.Sync()); err != nil {
		return 0, err
	}
	seconds = clock.Now() - begin
	k.RunRival(p.stream, slot)
	return seconds, p.stream.Sync()
}

// form is one variant of a product of a library.
type form struct {
	slot    int
	name    string // "ALG2 by rows"
	prepare func(slot int) error
	wrong   func() int // counts wrong elements after the first run
}

// fastest returns the fastest of several forms of a product. It is an error if no form works.
func (p *product) fastest(k rivals, c contender, forms []form) (contender, error) {
	var failed []error
	least := 0.0
	for _, f := range forms {
		prepared, err := p.ready(k, f.slot, func() error { return f.prepare(f.slot) })
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		mistakes := f.wrong()
		run := func() { k.RunRival(p.stream, f.slot) }
		if seconds := p.span(run, 2); c.run == nil || seconds < least {
			least = seconds
			c.run, c.prepared, c.wrong, c.unit = run, prepared, mistakes, "ms, "+f.name
		}
	}
	if c.run == nil {
		return c, errors.Join(failed...)
	}
	return c, nil
}

// orders are the memory orders of dense operands. Rows of tokens are columns of cuSPARSE's
// matrices.
var orders = []string{"by columns", "by rows"}

// spmmRival returns the fastest form of cuSPARSE's SpMM, over all algorithms and orders.
func (p *product) spmmRival(k rivals, w kernel.CSR) (contender, error) {
	best := contender{name: "spmm_cusparse", ratio: "spmm_to_cusparse"}
	if p.k.DType() == tensor.F32 {
		best.reach = 1
	}
	out := p.blank(p.n*w.Rows, p.k.DType())
	if p.err != nil {
		return best, p.err
	}
	var forms []form
	for turned, order := range orders {
		for number, algorithm := range algorithms {
			forms = append(forms, form{
				slot: len(forms), name: algorithm + " " + order,
				prepare: func(slot int) error {
					return k.PrepareSpMM(p.stream, slot, turned == 1, number, out, p.inp.mem, w, p.n)
				},
				wrong: func() int {
					if turned == 1 {
						return p.checkByRows(out)
					}
					return p.checkForward(out)
				},
			})
		}
	}
	return p.fastest(k, best, forms)
}

// sddmmRival returns the faster form of cuSPARSE's SDDMM, by the order of its operands.
func (p *product) sddmmRival(k rivals, w kernel.CSR) (contender, error) {
	best := contender{name: "sddmm_cusparse", ratio: "sddmm_to_cusparse", ours: 3}
	var forms []form
	for turned, order := range orders {
		sums := p.normal(w.NNZ, p.k.DType())
		if p.err != nil {
			return best, p.err
		}
		forms = append(forms, form{
			slot: slotSDDMM + turned, name: order,
			prepare: func(slot int) error {
				return k.PrepareSDDMM(p.stream, slot, turned == 1, sums.mem, p.dout.mem, p.inp.mem, w, p.n)
			},
			wrong: func() int { return p.checkValues(sums, turned == 1) },
		})
	}
	return p.fastest(k, best, forms)
}

// denseRival returns the dense product in TF32 as a rival.
func (p *product) denseRival(k rivals) (contender, error) {
	best := contender{name: "spmm_dense_tf32", ratio: "spmm_to_tf32"}
	out := p.blank(p.n*p.w.rows, p.k.DType())
	if p.err != nil {
		return best, p.err
	}
	return p.fastest(k, best, []form{{
		slot: slotTF32, name: "cuBLASLt",
		prepare: func(slot int) error {
			return k.PrepareTF32(p.stream, slot, out, p.inp.mem, p.dense, p.n, p.w.cols, p.w.rows)
		},
		wrong: func() int { return p.checkRoughly(out) },
	}})
}

// checkByRows counts the wrong elements of out (rows, n) = w·inp with inp (cols, n).
func (p *product) checkByRows(out tensor.Mem) int {
	w := p.w
	return p.sampled(out, w.rows, p.n, p.k.DType(), func(r, i int, want *total) {
		for e := w.rowPtr[r]; e < w.rowPtr[r+1]; e++ {
			want.add(p.inp.at(int(w.colIdx[e])*p.n+i) * float64(w.values[e]))
		}
	})
}

// roughly is the largest error of a product in TF32, in units of the sum of the absolute values of
// its terms. Both operands are rounded to 10 bits behind the point.
const roughly = 1.0 / 1024

// checkRoughly checks forward as checkForward does, with the tolerance of TF32.
func (p *product) checkRoughly(out tensor.Mem) int {
	w, check := p.w, checker{}
	for _, i := range spread(p.n, 16) {
		got := p.values(out, i*w.rows, w.rows, p.k.DType())
		for _, r := range spread(w.rows, 64) {
			var want total
			for e := w.rowPtr[r]; e < w.rowPtr[r+1]; e++ {
				want.add(p.inp.at(i*w.cols+int(w.colIdx[e])) * float64(w.values[e]))
			}
			check.within(got[r], want.sum, roughly*want.absolute)
		}
	}
	return check.wrong
}
