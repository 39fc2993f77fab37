package prune

import (
	"cmp"
	"fmt"
	"strconv"

	"dynmo/src/config"
	"dynmo/src/files"
)

// crossing is the sparsity above which the products of a pruned matrix take less time in CSR than
// masked and dense; 1 if they never do. It holds for one kind of device. It counts the products of
// a training step: one forward and two backward.
type crossing struct {
	device, precision string
	structure         string // prune.structure
	from              float64
	source            string // where the number is from
}

// crossings are what is known without a measurement of this machine. Storage follows
// settings and sparsity alone, never what a run measures, so that bits do not depend on
// how fast a machine was.
var crossings = []crossing{
	// dynmo bench spmm: below 50 % on a Zen 5 core, near 65 % on a Zen 4, later where dense products are faster.
	{"cpu", "f32", "unstructured", 0.7, measuredOnce},
	// Sparse products stay float32. Dense ones take half the time of float32 ones on a Zen 5 core (dynmo bench
	// spmm, and bench step --precision bf16).
	{"cpu", "bf16", "unstructured", 0.8, estimated},
	// dynmo bench gpu on an H100: at 80 % as long as the dense one, at 90 % 0.60 of it forwards and 0.88 for
	// weights. The paper has 75 %.
	{"cuda", "f32", "unstructured", 0.9, measuredOnce},
	// dynmo bench gpu on an H100: dense products take less time up to 98 % of zeros.
	{"cuda", "bf16", "unstructured", 1, measuredOnce},
	// dynmo bench spmm --structure block32: near 38 % on a Zen 5 core with the BLAS's AVX-512 kernels, below 20 %
	// with its AVX2 ones.
	{"cpu", "f32", "block32", 0.4, measuredOnce},
	// Sparse products stay float32. Dense ones take half the time of float32 ones on a Zen 5 core.
	{"cpu", "bf16", "block32", 0.7, estimated},
	// A product of blocks at a third of the rate of the dense one.
	{"cuda", "f32", "block32", 0.7, estimated},
	// A product of blocks at a fifth of the rate of the dense one.
	{"cuda", "bf16", "block32", 0.8, estimated},
}

// Sources of crossings.
const (
	measuredOnce = "measured elsewhere"
	estimated    = "estimated"
)

// never is a sparsity that no matrix reaches.
const never = 2

// csrFrom returns the sparsity from which a pruned matrix is stored as CSR, above 1 where
// none is: prune.csr_from, or what is known of the device.
func csrFrom(c config.Config) float64 {
	p := config.Of[options](c)
	if p.Structure == "2:4" {
		return never
	}
	from, err := strconv.ParseFloat(p.CSRFrom, 64)
	if err != nil {
		from = known(c).from
	}
	if from == 1 {
		return never
	}
	return from
}

// known returns what is known of the settings' device, precision and structure, which is
// not 2:4.
func known(c config.Config) crossing {
	for _, k := range crossings {
		if k.device == c.Device.Kind && k.precision == c.Device.Products() && k.structure == config.Of[options](c).Structure {
			return k
		}
	}
	panic("prune: a device without a crossing")
}

// resolve sets prune.csr_from where it is auto and pruning is on, and clears prune.crossing. So the
// settings of a run say how its matrices are stored, without another file. It returns a sentence
// with the reason, none if no weight is pruned. A run that resumes stores them as before: recorded is the file of its settings,
// which may be absent; "" for a new run. Errors are those of the file of prune.crossing.
func resolve(c *config.Config, recorded string) (why string, err error) {
	p := config.Of[options](*c)
	switch {
	case p.Structure == "2:4":
		return "matrices with two of every four weights left stay masked dense: no product here skips the others", nil
	case p.CSRFrom != "auto":
		return "", nil
	}
	if was, _, err := config.Recorded(recorded); err == nil && was.Dynamic.Has("prune") && config.Of[options](was).CSRFrom != "auto" {
		p.CSRFrom, p.Crossing = config.Of[options](was).CSRFrom, ""
		config.Set(c, p)
		return fmt.Sprintf("pruned matrices are stored as this run began: prune.csr_from = %s", p.CSRFrom), nil
	}
	known := known(*c)
	if p.Crossing != "" {
		if known, err = measured(*c, p.Crossing); err != nil {
			return "", err
		}
	}
	p.CSRFrom, p.Crossing = strconv.FormatFloat(known.from, 'g', -1, 64), ""
	config.Set(c, p)
	switch {
	case !prunes(*c):
		return "", nil
	case known.from == 1:
		return fmt.Sprintf("pruned matrices stay masked dense: faster for %s on %s at any sparsity (%s)", known.precision, known.device, known.source), nil
	}
	return fmt.Sprintf("pruned matrices are stored as CSR from %g %% of zeros on: faster for %s on %s (%s)",
		100*known.from, known.precision, known.device, known.source), nil
}

// measured returns the crossing in a file of figures, as dynmo bench prints them with
// --json: that of this kind of device and precision.
func measured(c config.Config, path string) (crossing, error) {
	figures, _, err := files.Lines[struct {
		Name        string
		Value       float64
		Wrong       int
		CPU, Device string
	}](path)
	if err != nil {
		return crossing{}, fmt.Errorf("prune.crossing: %w", err)
	}
	product, structure := "spmm", config.Of[options](c).Structure
	if structure != "unstructured" {
		product += "_" + structure
	}
	name := product + "/crossing"
	switch {
	case c.Device.Kind == "cpu" && c.Device.Products() != "f32":
		return crossing{}, fmt.Errorf("prune.crossing: its figures are of float32, and device.cpu_precision = %q: set prune.csr_from", c.Device.CPUPrecision)
	case c.Device.Kind == "cuda":
		name = "gpu/" + product + "_crossing_" + c.Device.Products()
	}
	for _, f := range figures {
		if f.Name != name {
			continue
		}
		if f.Wrong != 0 || !(f.Value >= 0 && f.Value <= 100) {
			return crossing{}, fmt.Errorf("prune.crossing: %s: %s is %g %%, with %d wrong elements: wanted 0 to 100 without any", path, name, f.Value, f.Wrong)
		}
		return crossing{c.Device.Kind, c.Device.Products(), structure, f.Value / 100, fmt.Sprintf("measured on %s: %s", cmp.Or(f.Device, f.CPU, "a machine without a name"), path)}, nil
	}
	return crossing{}, fmt.Errorf("prune.crossing: %s has no figure %s", path, name)
}
