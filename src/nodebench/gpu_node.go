package nodebench

import (
	"errors"
	"fmt"

	"dynmo/src/kernel"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// nodeParts are the parts that MeasureNode measures. Names of their figures begin with the part's
// name.
var nodeParts = []gpuPart{
	{"copy", (*gpu).copy},
	{"gemm", (*gpu).gemms},
	{"csr", (*gpu).csr},
	{"transfer", (*gpu).transfer},
}

// NodeParts returns how often MeasureNode calls begin.
func NodeParts() int { return len(nodeParts) }

// MeasureNode measures whether a GPU is slow: copies within it, dense products in float32 and bf16,
// a sparse one, and copies from and to the host. begin is called with the name of each part before
// the part, Done with its figures after it. A part that fails has no figures.
func (g GPU) MeasureNode(begin func(part string)) error {
	all := &gpu{GPU: g}
	var failed []error
	for _, part := range nodeParts {
		begin(part.name)
		if err := all.run(part); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	return errors.Join(failed...)
}

// csr measures the product of 4096 tokens with a float32 weight (4096, 4096) of nine tenths zeros.
// Only operations of the nonzero weights count.
func (g *gpu) csr() {
	rows, cols, n := g.size(4096, 80), g.size(4096, 64), g.size(4096, 48)
	w, k := newBlocks(rows, cols, csrPercent, 1), g.F32
	d := k.DType()
	inp, csr, out := g.normal(n*cols, d), w.csr(g.bench, g.repeated(w.values, len(w.values), d)), g.blank(n*rows, d)
	if g.err != nil {
		return
	}
	spans := g.spans(func() { k.SpMMForward(g.stream, out, inp.mem, csr, none, n) })
	wrong := g.sampled(out, n, rows, d, func(i, j int, want *total) {
		for l := range cols {
			want.add(inp.at(i*cols+l) * float64(w.dense[j*cols+l]))
		}
	})
	g.estimate("csr_"+d.String(), spans.rate(0, 2e-12*float64(n)*float64(len(w.values))), "TFLOP/s", 0, wrong)
}

// transfer measures copies of 256 MiB between the GPU and pinned memory of the host, each direction
// alone.
func (g *gpu) transfer() {
	n := g.size(64<<20, 1<<10)
	from, to := g.normal(n, tensor.F32), g.blank(n, tensor.F32)
	bytes := from.mem.Bytes
	if g.err != nil {
		return
	}
	host, err := g.Device.AllocHost(bytes)
	if err != nil {
		g.err = err
		return
	}
	defer g.Device.FreeHost(host)
	down := func() { g.stream.Copy(host, from.mem) }
	up := func() { g.stream.Copy(to, host) }
	down()
	spans := g.spans(up, down)
	c := checker{}
	for _, first := range windows(n) {
		for i, x := range g.values(to, first, min(window, n-first), tensor.F32) {
			c.within(x, from.at(first+i), 0)
		}
	}
	for i, name := range []string{"host_to_gpu", "gpu_to_host"} {
		g.estimate(name, spans.rate(i, 1e-9*float64(bytes)), "GB/s", 0, c.wrong)
	}
}

// Burned is the result of a burn-in.
type Burned struct {
	Products int
	Wrong    int    // products whose bits were not those of the first
	Digest   uint64 // of the bits of the first product; equal on equal devices
}

// burnWidth is the rows and columns of the square matrices of a burn-in, unless it is quick.
const burnWidth = 4096

// Burn repeats one product of square bf16 matrices for some seconds, and compares the bits of every
// result. The kernels add in a fixed order, so devices of one model give the same bits. Other bits
// are silent corruption.
func (g GPU) Burn(seconds float64) (Burned, error) {
	all := &gpu{GPU: g, bench: newBench(g.BF16, g.Device)}
	defer all.stream.Close()
	defer all.free()
	n, d := all.size(burnWidth, 64), g.BF16.DType()
	x, w := all.normal(n*n, d), all.normal(n*n, d)
	return all.burn(g.BF16, x.mem, w.mem, all.blank(n*n, d), n, seconds)
}

// Burn does the same as GPU.Burn on the host, in float32.
func (h Host) Burn(seconds float64) (Burned, error) {
	b := &hostBench{bench: newBench(h.Kernels, h.Device), Host: h}
	defer b.free()
	n := b.size(burnWidth/4, 64)
	draw := random.Keyed(4).NormFloat64
	return b.burn(h.Kernels, b.matrix(n*n, draw), b.matrix(n*n, draw), b.matrix(n*n, nil), n, seconds)
}

// burn repeats out = x·wᵀ for some seconds, and compares the bits.
func (b *bench) burn(k kernel.Backend, x, w, out tensor.Mem, n int, seconds float64) (Burned, error) {
	if b.err != nil {
		return Burned{}, b.err
	}
	host, err := b.dev.AllocHost(out.Bytes)
	if err != nil {
		return Burned{}, err
	}
	defer b.dev.FreeHost(host)
	var burned Burned
	for begin := b.dev.Clock().Now(); burned.Products == 0 || b.dev.Clock().Now()-begin < seconds; burned.Products++ {
		for range burst {
			k.MatmulForward(b.stream, out, x, w, none, n, n, n)
		}
		b.stream.Copy(host, out)
		if b.sync(); b.err != nil {
			return burned, b.err
		}
		digest := fnv64(tensor.Of[uint64](host))
		if burned.Products == 0 {
			burned.Digest = digest
		} else if digest != burned.Digest {
			burned.Wrong++
		}
	}
	burned.Products *= burst
	return burned, nil
}

// burst is how many products a burn-in makes before it checks the last of them. A check on the host
// takes longer than a product on a GPU.
const burst = 32

// fnv64 hashes words (FNV-1a, with words in place of bytes).
func fnv64(words []uint64) uint64 {
	hash := uint64(14695981039346656037)
	for _, w := range words {
		hash = (hash ^ w) * 1099511628211
	}
	return hash
}
