// Package roofline estimates the costs of layers on a GPU that is not at hand. Settings and a GPU's
// published rates come in, a cost table marked "estimated" goes out. Every kernel call of a
// training step takes the time of its slowest bound,
//
//	seconds = max(operations / (rate · efficiency), bytes / (bandwidth · efficiency)) + launch
//
// The calls are those of the model, with their shapes; nothing is computed. The estimate leaves out
// caches, tiles that do not divide a product, clocks that fall under load, and the ways of tokens.
// A measured table is better. Example: 24 blocks of 1024 channels, heads of 64, two sequences of
// 2048 tokens, on one H100. A block took 1.16 (forward), 1.26 (backward for inputs) and 1.32 (for
// weights) times its estimate, the head 0.94, 0.79 and 0.92 times.
package roofline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// GPU has the peak rates of a GPU, in operations, exponentials and bytes per second. It also has
// the shares of these rates that kernels are assumed to reach.
type GPU struct {
	Name      string
	Matrix    float64 // products of bfloat16 on tensor cores, without structured sparsity
	Plain     float64 // operations on float32, an addition and a multiplication apart
	Special   float64 // exponentials
	Bandwidth float64
	Attention float64 // share of Matrix that the products in attention reach
	Scores    bool    // attention computes and stores the scores of all pairs, also of later keys
	Nodes     string  // whose network its nodes have: cluster-NAME.toml
	Memory    int64   // bytes for layers: 80 GB of 80 GiB, the others are for contexts and NCCL
	Devices   string  // regular expression of the names that drivers give to such GPUs; "": none
}

// gpus lists the known GPUs. Rates are from NVIDIA's data sheets ("H100 Tensor Core GPU" 2023,
// "A100 Tensor Core GPU" 2021). Special is 16 in a clock of each multiprocessor, at the boost clock
// of those rates; for the H100 that is the 3.9e12 of Shah et al. (2024). Attention is the measured
// share of FlashAttention-2, which has the same design as the kernels: 0.5 to 0.73 on an A100 (Dao
// 2023), up to 0.35 on an H100 (Shah et al. 2024).
//
// "h100-paper" is an H100 as the paper's table 1 shows it, by assumptions that fit the table.
// Products are of float32 without TF32. Attention stores its scores, in 16 bits. Blocks keep
// activations as in storedActivations. A block of hidden 1024 and 32 heads then takes 6.1 ms for a
// sequence of 2048 tokens. Table 1 has 5.3 to 7.1 ms, which is GPUs / (samples/s · layers), if its
// samples/s are those of one replica. With a limit of 80e9 bytes, 1F1B and uniform cuts, 14 of the
// table's 15 cells fit or run out of memory as in the table. The other is 56 layers on 8 GPUs,
// which take 87e9 bytes here and fit there.
var gpus = []GPU{
	{Name: "a100", Matrix: 312e12, Plain: 19.5e12, Special: 2.44e12, Bandwidth: 2.039e12, Attention: 0.55, Nodes: "a100", Memory: 80e9, Devices: "^NVIDIA A100"},                  // SXM, 80 GB
	{Name: "h100", Matrix: 989.4e12, Plain: 67e12, Special: 3.87e12, Bandwidth: 3.35e12, Attention: 0.35, Nodes: "h100", Memory: 80e9, Devices: "^NVIDIA (H100 80GB HBM3|H200)$"}, // SXM5, 80 GB
	{Name: "h100-paper", Matrix: 67e12, Plain: 67e12, Special: 3.87e12, Bandwidth: 3.35e12, Attention: products, Scores: true, Nodes: "h100", Memory: 80e9},
}

// Shares of a rate that are chosen, not measured here: of what tuned libraries reach in
// large products, copies in memory, and code without tensor cores.
const (
	products = 0.70
	copies   = 0.85
	vector   = 0.50
	// launch is the seconds from a kernel to the next one of a replayed graph.
	launch = 2e-6
	// dispatch is the seconds from an instruction's graph to that of the next.
	dispatch = 10e-6
)

// Names returns the names that Known takes.
func Names() []string {
	var names []string
	for _, g := range gpus {
		names = append(names, g.Name)
	}
	return names
}

// Known returns the GPU of a name.
func Known(name string) (GPU, error) {
	i := slices.IndexFunc(gpus, func(g GPU) bool { return g.Name == name })
	if i < 0 {
		return GPU{}, fmt.Errorf("no rates of a GPU %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	return gpus[i], nil
}

// Peak returns the operations per second of products of a type on a GPU whose name the driver gave, from data
// sheets. It returns 0 for a GPU that is not known.
func Peak(device string, d tensor.DType) float64 {
	for _, g := range gpus {
		if g.Devices != "" && regexp.MustCompile(g.Devices).MatchString(device) {
			return g.products(d)
		}
	}
	return 0
}

// products returns the peak rate of products of a type.
func (g GPU) products(d tensor.DType) float64 {
	if d == tensor.BF16 {
		return g.Matrix
	}
	return g.Plain // without TF32
}

// Seconds returns what a call takes whose weights and activations have elements of a type.
func (g GPU) Seconds(c *kernel.Call, d tensor.DType) float64 {
	matrix := g.products(d)
	rate := g.Plain * vector
	switch {
	case kernel.MatmulForward <= c.Op && c.Op <= kernel.MatmulBackwardWeight,
		kernel.GroupedForward <= c.Op && c.Op <= kernel.GroupedBackwardWeight:
		rate = matrix * products
	case attends(c.Op):
		rate = matrix * g.Attention
	}
	flops := float64(c.Op.Of().Flops) * float64(c.Op.Of().Work(worked(c)))
	if g.Scores && attends(c.Op) {
		return 2*flops*storedProducts(c.Op)/rate + scoreBytes(c)/(g.Bandwidth*copies) + launch
	}
	return g.slowest(flops/rate, exponentials(c), bytes(c, d))
}

// Product returns the seconds of a product of matrices in bfloat16, which moves these bytes.
func (g GPU) Product(multiplyAdds, bytes float64) float64 {
	return g.slowest(2*multiplyAdds/(g.Matrix*products), 0, bytes)
}

// Attending returns the seconds of attention in bfloat16 that stores no scores.
func (g GPU) Attending(multiplyAdds, exponentials, bytes float64) float64 {
	return g.slowest(2*multiplyAdds/(g.Matrix*g.Attention), exponentials, bytes)
}

// Moving returns the seconds of a kernel that computes little and moves these bytes.
func (g GPU) Moving(bytes float64) float64 { return g.slowest(0, 0, bytes) }

// slowest returns the seconds of a kernel from the seconds of its operations, its exponentials and its bytes.
func (g GPU) slowest(operations, exponentials, bytes float64) float64 {
	return max(operations, exponentials/(g.Special*vector), bytes/(g.Bandwidth*copies)) + launch
}

// storedProducts returns the share of an operation's products that are left where scores are
// stored: backward computes them anew, one product of five.
func storedProducts(op kernel.Op) float64 {
	if op == kernel.AttentionBackward || op == kernel.SparseAttentionBackward {
		return 0.8
	}
	return 1
}

// scoreBytes returns the bytes that kernels move if they store scores, of two bytes each, and a
// mask of one. Forward, the product writes a score (2), and softmax reads and writes it (4).
// Dropout reads and writes it with the mask (5), and the second product reads it (2). Backward, the
// products read and write it five times (10), dropout once with the mask (5). Softmax reads it
// twice and writes it (6).
func scoreBytes(c *kernel.Call) float64 {
	pairs := 2 * exponentials(c)
	if c.Op == kernel.AttentionForward || c.Op == kernel.SparseAttentionForward {
		return 13 * pairs
	}
	return 21 * pairs
}

// worked returns the dimensions that a call works on: of grouped products the rows that
// groups have, where the call has room for more.
func worked(c *kernel.Call) *kernel.Dims {
	d := c.Dims
	if kernel.GroupedForward <= c.Op && c.Op <= kernel.GroupedBackwardWeight {
		ends := tensor.Of[int32](c.Mem[3])
		d.N = int(ends[len(ends)-1])
	}
	return &d
}

// attends reports whether the products of an operation are those of attention.
func attends(op kernel.Op) bool {
	switch op {
	case kernel.AttentionForward, kernel.AttentionBackward, kernel.SparseAttentionForward, kernel.SparseAttentionBackward:
		return true
	}
	return false
}

// exponentials returns those of a call of attention: one for each pair of a query and a
// key of a head, half of all that there are.
func exponentials(c *kernel.Call) float64 {
	if !attends(c.Op) || c.C == 0 {
		return 0
	}
	return float64(c.Op.Of().Work(&c.Dims)) / float64(c.C) * float64(c.NH) / 2
}

// bytes returns the bytes that a call must move: once for operands that it reads or sets, twice for
// those that it changes. Of a table it counts at most as many rows as the call has.
func bytes(c *kernel.Call, d tensor.DType) float64 {
	sum, works := int64(0), worked(c)
	for i, p := range c.Op.Of().Operands {
		moved := c.Mem[i].Bytes
		if some, all := p.Count(works), p.Count(&c.Dims); some < all {
			moved = moved / int64(all) * int64(some)
		}
		if p.Kind >= kernel.Table {
			rows := int64(c.N * max(1, c.K))
			moved = min(moved, rows*int64(p.Count(&c.Dims))*p.Kind.Type(d).Size())
		}
		if p.Use == kernel.Update {
			moved *= 2
		}
		sum += moved
	}
	return float64(sum)
}
