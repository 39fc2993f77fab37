package kernel

import "dynmo/src/tensor"

// Op is the number of an operation. Backend has a method of the same name for each Op, except that
// AdamWUpdate is the method AdamW.
type Op uint8

// Operations, in the order of the table that Op.Of reads.
const (
	EmbeddingForward Op = iota
	EmbeddingBackward
	NormForward
	NormBackwardInput
	NormBackwardInputTo
	NormBackwardWeight
	MatmulForward
	MatmulForwardAdd
	MatmulForwardGELU
	MatmulBackwardInput
	MatmulBackwardGELU
	MatmulBackwardWeight
	SpMMForward
	SpMMBackwardInput
	SDDMM
	Rotary
	AttentionForward
	AttentionBackward
	AttentionHash
	SparseAttentionForward
	SparseAttentionBackward
	ShareKeys
	ShareKeysGradient
	GELUForward
	GELUBackward
	SwiGLUForward
	SwiGLUBackward
	Add
	Accumulate
	Round
	AccumulateRounded
	AccumulateFixed
	AddFixed
	RoundFixed
	SoftmaxMerge
	SoftmaxGradient
	CrossEntropy
	Likeliest
	SumSquares
	AdamWUpdate
	GatherRows
	ScatterRows
	GateGradient
	TakeTokens
	ListTokens
	CombineRows
	CombineRowsAdd
	CombineGradient
	SquashLogits
	SquashGradient
	BalanceScores
	RouteTokens
	RouteGradient
	PlaceTokens
	GroupedForward
	GroupedBackwardInput
	GroupedBackwardWeight
	Mask
	MagnitudeHistogram
	MaskWeights
	SelectLargest
	MaskRanks
	Compact
	CompactWide
	CompactRows
	BlockScores
	BlockMask
	PairScores
	PairMask
	Ops // the number of operations
)

// Operation describes the operands and the cost of an operation. The comments of Backend describe the
// result. Calls.Verify checks calls against an Operation. Package null takes the time of a call from
// it, and package kerneltest makes operands for it.
type Operation struct {
	Name     string    // of the method of Backend
	Flops    int       // floating-point operations for each unit of Work
	Work     Count     // number of units of work of a call
	Operands []Operand // in the order of the method's parameters
}

// Operand describes one memory parameter of an operation.
type Operand struct {
	Name     string // of the parameter of Backend's method
	Kind     Kind   // type of the elements
	Use      Use    // whether the operation reads or writes the operand
	Optional bool   // the operand may be absent (a zero tensor.Mem)
	Count    Count  // number of elements; of a Table or wide table, elements of one row
}

// Kind says which type the elements of an operand have. The zero Kind is the backend's DType; the
// other kinds that have no exported name are I64, F64, bfloat16, and a Table of wide elements.
type Kind uint8

// Kinds of operands.

const (
	float  Kind = iota // the backend's DType
	Wide               // DType.Wide
	Master             // DType.Wide if this is not DType itself; otherwise the operand is absent
	I32
	i64
	U64
	f64
	bf16
	Table     // DType: any number of rows, at least one; Operand.Count is the length of a row
	wideTable // DType.Wide: any number of rows, at least one
	kinds     // the number of kinds
)

// Type returns the element type of the kind for a backend whose DType is d.
func (k Kind) Type(d tensor.DType) tensor.DType {
	switch k {
	case I32:
		return tensor.I32
	case i64:
		return tensor.I64
	case U64:
		return tensor.U64
	case f64:
		return tensor.F64
	case bf16:
		return tensor.BF16
	case float, Table:
		return d
	}
	return d.Wide()
}

// HasDType reports whether elements of the kind have the backend's DType.
func (k Kind) HasDType() bool { return k == float || k == Table }

// Use says whether an operation reads or writes an operand.
type Use uint8

// Uses of an operand.
const (
	Read   Use = iota // read only
	Set               // overwritten; the elements before the call do not matter
	Update            // added to, or changed in place
)

// Dims are the dimensions of a call. Dimensions that its operation does not have are 0.
type Dims struct {
	N       int // n: tokens or rows; elements if the operands have no rows; groups of four of PairMask
	C, O    int // c, o: channels, output channels. Of a sparse matrix columns, rows; of BlockScores in blocks
	NNZ     int // entries of a sparse matrix; blocks of BlockScores
	V       int // columns of logits
	B       int // sequences
	Longest int // most tokens of a sequence
	NH      int // heads
	KV      int // heads that have keys and values
	HS      int // channels of a head that is rotated
	K       int // k (each, top or places in Calls): choices of a token, rows combined into one, tokens of a list
	Buckets int // buckets into which a head's tokens are sorted
	E       int // experts
	Gap     int // elements between the matrices of two experts
}

// Count returns a number of elements, or of units of work, for the dimensions of a call.
type Count func(*Dims) int

// The name of a function below is usually its formula: nc returns N·C.

func one(*Dims) int      { return 1 }
func n(d *Dims) int      { return d.N }
func c(d *Dims) int      { return d.C }
func o(d *Dims) int      { return d.O }
func nnz(d *Dims) int    { return d.NNZ }
func nc(d *Dims) int     { return d.N * d.C }
func no(d *Dims) int     { return d.N * d.O }
func oc(d *Dims) int     { return d.O * d.C }
func nv(d *Dims) int     { return d.N * d.V }
func n3(d *Dims) int     { return d.N * 3 }
func n3c(d *Dims) int    { return d.N * 3 * d.C }
func n2c(d *Dims) int    { return d.N * 2 * d.C }
func nk(d *Dims) int     { return d.N * d.K }
func nkc(d *Dims) int    { return d.N * d.K * d.C }
func hs(d *Dims) int     { return d.HS }
func turns(d *Dims) int  { return d.N * d.NH * d.HS }
func nhn(d *Dims) int    { return d.NH * d.N }
func nco(d *Dims) int    { return d.N * d.C * d.O }
func nnnz(d *Dims) int   { return d.N * d.NNZ }
func rows(d *Dims) int   { return d.O + 1 }
func ends(d *Dims) int   { return d.B + 1 }
func qkvs(d *Dims) int   { return d.N * (d.C + 2*d.KV*(d.C/max(d.NH, 1))) } // queries, keys and values
func blocks(d *Dims) int { return SquareBlocks(d.N) }
func bits(d *Dims) int   { return (d.N + 63) / 64 }
func bins(*Dims) int     { return 256 }
func fixed(d *Dims) int  { return FixedWords(d.N) }
func pairs(d *Dims) int  { return d.N * d.N / max(d.B, 1) * d.C } // of a mean sequence's tokens

func ranks(d *Dims) int     { return bits(d) + 1 }
func inBlocks(d *Dims) int  { return d.NNZ * Block * Block }
func blockBits(d *Dims) int { return (d.NNZ + 63) / 64 }
func blockRows(d *Dims) int { return d.O*Block + 1 }
func blockMask(d *Dims) int { return inBlocks(d) / 64 }
func n4(d *Dims) int        { return 4 * d.N }
func n4Bits(d *Dims) int    { return (4*d.N + 63) / 64 }

// kept is the number of pairs in equal buckets, if tokens fall evenly into the buckets.
func kept(d *Dims) int   { return pairs(d) / max(d.Buckets, 1) }
func sorts(d *Dims) int  { return d.N * d.NH * 2 }
func starts(d *Dims) int { return d.B * d.NH * 2 * (d.Buckets + 1) }
func two(*Dims) int      { return 2 }
func five(*Dims) int     { return 5 }
func k(d *Dims) int      { return d.K }
func k2(d *Dims) int     { return 2 * d.K }

func ne(d *Dims) int  { return d.N * d.E }
func nee(d *Dims) int { return d.N * d.E * d.E }
func ee(d *Dims) int  { return d.E * d.E }
func n2e(d *Dims) int { return d.N * 2 * d.E }
func e1(d *Dims) int  { return d.E + 1 }
func e4(d *Dims) int  { return d.E + 4 }

// matrices is the elements of the matrices (o, c) of all experts, and of the gaps between them.
func matrices(d *Dims) int { return d.E*d.O*d.C + max(d.E-1, 0)*d.Gap }

// projections is the elements of the projections of all heads. projected is the number of products of
// all tokens' channels with the projections of their heads.
func projections(d *Dims) int { return d.C * (d.Buckets / 2) }
func projected(d *Dims) int   { return d.N * projections(d) }

func in(name string, count Count) Operand  { return Operand{Name: name, Count: count} }
func set(name string, count Count) Operand { return Operand{Name: name, Count: count, Use: Set} }
func add(name string, count Count) Operand { return Operand{Name: name, Count: count, Use: Update} }

func (p Operand) of(k Kind) Operand { p.Kind = k; return p }
func (p Operand) optional() Operand { p.Optional = true; return p }

// Of returns the description of the operation.
func (op Op) Of() *Operation { return &operations[op] }

// String returns the name of Backend's method.
func (op Op) String() string { return op.Of().Name }

// operations describes all operations. An addition and a multiplication count as two operations.
// Attention has 2 products forward and 5 backward over the causal half of the scores. BalanceScores
// counts 16 rounds. Operations on elements count one for each element.
var operations = [Ops]Operation{
	EmbeddingForward: {"EmbeddingForward", 1, nc, []Operand{set("out", nc), in("tokens", n).of(I32),
		in("positions", n).of(I32), in("wte", c).of(Table), in("wpe", c).of(Table)}},
	EmbeddingBackward: {"EmbeddingBackward", 1, nc, []Operand{add("dwte", c).of(wideTable), add("dwpe", c).of(wideTable).optional(),
		in("dout", nc), in("tokens", n).of(I32), in("positions", n).of(I32)}},
	NormForward: {"NormForward", 1, nc, []Operand{set("out", nc), set("mean", n).of(Wide).optional(), set("rstd", n).of(Wide),
		in("inp", nc), in("weight", c), in("bias", c).optional()}},
	NormBackwardInput: {"NormBackwardInput", 1, nc, []Operand{add("dinp", nc), in("dout", nc), in("inp", nc),
		in("mean", n).of(Wide).optional(), in("rstd", n).of(Wide), in("weight", c)}},
	NormBackwardInputTo: {"NormBackwardInputTo", 1, nc, []Operand{set("dinp", nc), in("add", nc), in("dout", nc),
		in("inp", nc), in("mean", n).of(Wide).optional(), in("rstd", n).of(Wide), in("weight", c)}},
	NormBackwardWeight: {"NormBackwardWeight", 1, nc, []Operand{add("dweight", c).of(Wide), add("dbias", c).of(Wide).optional(),
		in("dout", nc), in("inp", nc), in("mean", n).of(Wide).optional(), in("rstd", n).of(Wide)}},
	MatmulForward: {"MatmulForward", 2, nco, []Operand{set("out", no), in("inp", nc), in("weight", oc), in("bias", o).optional()}},
	MatmulForwardAdd: {"MatmulForwardAdd", 2, nco, []Operand{set("out", no), in("inp", nc), in("weight", oc),
		in("bias", o).optional(), in("add", no)}},
	MatmulForwardGELU: {"MatmulForwardGELU", 2, nco, []Operand{set("out", no), set("pre", no), in("inp", nc), in("weight", oc),
		in("bias", o).optional()}},
	MatmulBackwardInput: {"MatmulBackwardInput", 2, nco, []Operand{set("dinp", nc), in("dout", no), in("weight", oc)}},
	MatmulBackwardGELU:  {"MatmulBackwardGELU", 2, nco, []Operand{set("dpre", nc), in("dout", no), in("weight", oc), in("pre", nc)}},
	MatmulBackwardWeight: {"MatmulBackwardWeight", 2, nco, []Operand{add("dweight", oc).of(Wide), add("dbias", o).of(Wide).optional(),
		in("dout", no), in("inp", nc)}},
	SpMMForward: {"SpMMForward", 2, nnnz, []Operand{set("out", no), in("inp", nc), in("w.RowPtr", rows).of(I32),
		in("w.ColIdx", nnz).of(I32), in("w.Values", nnz), in("bias", o).optional()}},
	SpMMBackwardInput: {"SpMMBackwardInput", 2, nnnz, []Operand{set("dinp", nc), in("dout", no), in("w.RowPtr", rows).of(I32),
		in("w.ColIdx", nnz).of(I32), in("w.Values", nnz)}},
	SDDMM: {"SDDMM", 2, nnnz, []Operand{add("dvalues", nnz).of(Wide), add("dbias", o).of(Wide).optional(), in("dout", no),
		in("inp", nc), in("w.RowPtr", rows).of(I32), in("w.ColIdx", nnz).of(I32)}},
	Rotary: {"Rotary", 3, turns, []Operand{add("qkv", nc), in("positions", n).of(I32), in("table", hs).of(wideTable)}},
	AttentionForward: {"AttentionForward", 2, pairs, []Operand{set("out", nc), set("lse", nhn).of(Wide), in("qkv", qkvs),
		in("offsets", ends).of(I32)}},
	AttentionBackward: {"AttentionBackward", 5, pairs, []Operand{set("dqkv", qkvs), in("dout", nc), in("qkv", qkvs), in("out", nc),
		in("lse", nhn).of(Wide), in("offsets", ends).of(I32)}},
	AttentionHash: {"AttentionHash", 4, projected, []Operand{set("h.Order", sorts).of(I32), set("h.Starts", starts).of(I32),
		set("pairs", two).of(f64), in("qkv", n3c), in("offsets", ends).of(I32), in("projections", projections).of(Wide)}},
	ShareKeys:         {"ShareKeys", 4, nc, []Operand{set("qkv", n3c), in("qv", n2c)}},
	ShareKeysGradient: {"ShareKeysGradient", 8, nc, []Operand{set("dqv", n2c), in("dqkv", n3c), in("qkv", n3c)}},
	SparseAttentionForward: {"SparseAttentionForward", 2, kept, []Operand{set("out", nc), set("lse", nhn).of(Wide), in("qkv", n3c),
		in("offsets", ends).of(I32), in("h.Order", sorts).of(I32), in("h.Starts", starts).of(I32)}},
	SparseAttentionBackward: {"SparseAttentionBackward", 5, kept, []Operand{set("dqkv", n3c), in("dout", nc), in("qkv", n3c),
		in("out", nc), in("lse", nhn).of(Wide), in("offsets", ends).of(I32), in("h.Order", sorts).of(I32), in("h.Starts", starts).of(I32)}},
	GELUForward:    {"GELUForward", 1, n, []Operand{set("out", n), in("inp", n)}},
	GELUBackward:   {"GELUBackward", 1, n, []Operand{set("dinp", n), in("inp", n), in("dout", n)}},
	SwiGLUForward:  {"SwiGLUForward", 1, nc, []Operand{set("out", nc), in("gateup", n2c)}},
	SwiGLUBackward: {"SwiGLUBackward", 1, n2c, []Operand{set("dgateup", n2c), in("dout", nc), in("gateup", n2c)}},
	Add:            {"Add", 1, n, []Operand{set("out", n), in("a", n), in("b", n)}},
	Accumulate:     {"Accumulate", 1, n, []Operand{set("out", n).of(Wide), in("a", n).of(Wide), in("b", n).of(Wide)}},
	Round:          {"Round", 1, n, []Operand{set("out", n).of(bf16), in("x", n).of(Wide)}},
	AccumulateRounded: {"AccumulateRounded", 1, n, []Operand{set("out", n).of(Wide), in("a", n).of(Wide).optional(),
		in("b", n).of(bf16)}},
	AccumulateFixed: {"AccumulateFixed", 1, n, []Operand{add("sum", fixed).of(i64), in("x", n).of(Wide)}},
	AddFixed:        {"AddFixed", 1, n, []Operand{add("sum", fixed).of(i64), in("other", fixed).of(i64)}},
	RoundFixed:      {"RoundFixed", 1, n, []Operand{set("out", n).of(Wide), in("sum", fixed).of(i64)}},
	SoftmaxMerge: {"SoftmaxMerge", 1, nv, []Operand{set("out", n3).of(f64), in("before", n3).of(f64).optional(),
		in("logits", nv), in("targets", n).of(I32)}},
	SoftmaxGradient: {"SoftmaxGradient", 1, nv, []Operand{add("logits", nv), in("stats", n3).of(f64), in("targets", n).of(I32)}},
	CrossEntropy: {"CrossEntropy", 1, nv, []Operand{set("loss", one).of(f64), set("out", n3).of(f64),
		in("before", n3).of(f64).optional(), add("logits", nv), in("targets", n).of(I32)}},
	Likeliest: {"Likeliest", 1, nv, []Operand{set("out", n).of(I32), in("logits", nv)}},
	GatherRows: {"GatherRows", 1, nc, []Operand{set("out", nc), in("inp", c).of(Table), in("rows", n).of(I32),
		in("factor", n).of(Wide).optional()}},
	ScatterRows: {"ScatterRows", 3, nc, []Operand{add("out", c).of(Table), in("add", nc), in("rows", n).of(I32),
		in("keep", n).of(Wide), in("factor", n).of(Wide).optional()}},
	GateGradient: {"GateGradient", 3, nc, []Operand{add("dlogits", one).of(Table), in("dout", nc), in("a", nc), in("b", nc),
		in("rows", n).of(I32), in("factor", n).of(Wide)}},
	TakeTokens: {"TakeTokens", 8, n, []Operand{set("taken", n).of(I32), set("readings", five).of(f64), set("dlogits", n),
		set("dguesses", n).optional(), in("logits", n), in("guesses", n).optional(), in("offsets", ends).of(I32)}},
	ListTokens: {"ListTokens", 4, n, []Operand{set("rows", k).of(I32), set("factors", k2).of(Wide), set("listed", k).of(I32),
		set("ends", ends).of(I32), in("taken", n).of(I32), in("logits", n), in("positions", n).of(I32), in("offsets", ends).of(I32)}},
	CombineRows: {"CombineRows", 2, nkc, []Operand{set("out", nc), in("inp", c).of(Table), in("rows", nk).of(I32),
		in("factor", nk).of(Wide).optional()}},
	CombineRowsAdd: {"CombineRowsAdd", 2, nkc, []Operand{set("out", nc), in("inp", c).of(Table), in("rows", nk).of(I32),
		in("factor", nk).of(Wide).optional(), in("add", nc)}},
	CombineGradient: {"CombineGradient", 2, nkc, []Operand{set("dfactor", nk).of(Wide), in("dout", nc), in("inp", c).of(Table),
		in("rows", nk).of(I32)}},
	SquashLogits:   {"SquashLogits", 2, nee, []Operand{set("router", n2e).of(f64), set("squashed", ne), in("inp", ne), in("weight", ee)}},
	SquashGradient: {"SquashGradient", 2, nee, []Operand{set("dinp", ne), in("dout", ne), in("inp", ne), in("weight", ee)}},
	BalanceScores:  {"BalanceScores", 4 * 16, ne, []Operand{add("router", n2e).of(f64), in("logits", ne).optional()}},
	RouteTokens: {"RouteTokens", 8, ne, []Operand{set("chosen", nk).of(I32), set("weights", nk).of(Wide), add("router", n2e).of(f64),
		set("readings", e4).of(f64), in("logits", ne).optional(), in("scores", ne).of(f64).optional()}},
	RouteGradient: {"RouteGradient", 4, ne, []Operand{set("dlogits", ne), in("dweights", nk).of(Wide), in("chosen", nk).of(I32),
		in("router", n2e).of(f64)}},
	PlaceTokens: {"PlaceTokens", 1, nk, []Operand{set("places", nk).of(I32), set("tokens", nk).of(I32), set("factors", nk).of(Wide),
		set("ends", e1).of(I32), in("chosen", nk).of(I32), in("weights", nk).of(Wide)}},
	GroupedForward: {"GroupedForward", 2, nco, []Operand{add("out", no), in("inp", nc), in("weights", matrices), in("ends", e1).of(I32)}},
	GroupedBackwardInput: {"GroupedBackwardInput", 2, nco, []Operand{add("dinp", nc), in("dout", no), in("weights", matrices),
		in("ends", e1).of(I32)}},
	GroupedBackwardWeight: {"GroupedBackwardWeight", 2, nco, []Operand{add("dweights", matrices).of(Wide), in("dout", no), in("inp", nc),
		in("ends", e1).of(I32)}},
	SumSquares: {"SumSquares", 1, n, []Operand{set("out", blocks).of(f64), in("x", n).of(Wide)}},
	AdamWUpdate: {"AdamW", 1, n, []Operand{add("w", n), add("master", n).of(Master), add("m", n).of(Wide), add("v", n).of(Wide),
		in("g", n).of(Wide)}},
	Mask: {"Mask", 1, n, []Operand{add("x", n).of(Wide), in("mask", bits).of(U64)}},
	MagnitudeHistogram: {"MagnitudeHistogram", 1, n, []Operand{add("hist", bins).of(i64), in("x", n).of(Wide),
		in("mask", bits).of(U64).optional()}},
	MaskWeights: {"MaskWeights", 1, n, []Operand{add("x", n), in("mask", bits).of(U64)}},
	SelectLargest: {"SelectLargest", 1, n, []Operand{set("kept", bits).of(U64), in("x", n).of(Wide),
		in("mask", bits).of(U64).optional()}},
	MaskRanks: {"MaskRanks", 1, bits, []Operand{set("ranks", ranks).of(I32), in("mask", bits).of(U64)}},
	Compact:   {"Compact", 1, n, []Operand{set("out", nnz), in("inp", n), in("mask", bits).of(U64), in("ranks", ranks).of(I32)}},
	CompactWide: {"CompactWide", 1, n, []Operand{set("out", nnz).of(Wide), in("inp", n).of(Wide), in("mask", bits).of(U64),
		in("ranks", ranks).of(I32)}},
	CompactRows: {"CompactRows", 1, n, []Operand{set("w.RowPtr", rows).of(I32), set("w.ColIdx", nnz).of(I32),
		in("from.RowPtr", rows).of(I32).optional(), in("from.ColIdx", n).of(I32).optional(), in("mask", bits).of(U64),
		in("ranks", ranks).of(I32)}},
	BlockScores: {"BlockScores", 2, inBlocks, []Operand{set("scores", nnz).of(Wide), in("w", inBlocks).of(Wide),
		in("mask", blockMask).of(U64).optional(), in("rowPtr", blockRows).of(I32).optional()}},
	BlockMask: {"BlockMask", 1, blockMask, []Operand{set("mask", blockMask).of(U64), in("blocks", blockBits).of(U64),
		in("rowPtr", blockRows).of(I32).optional()}},
	PairScores: {"PairScores", 1, n4, []Operand{set("scores", n).of(Wide), in("w", n4).of(Wide),
		in("mask", n4Bits).of(U64).optional()}},
	PairMask: {"PairMask", 1, n4, []Operand{set("kept", n4Bits).of(U64), in("w", n4).of(Wide), in("mask", n4Bits).of(U64).optional(),
		in("whole", bits).of(U64)}},
}

// SquareBlock is the number of elements of a block of SumSquares. It is part of the definition of a
// gradient's norm. A slice of a layer that begins at a multiple of SquareBlock has the same block sums
// as the whole layer. So cutting layers into slices does not change the norm's bits.
const SquareBlock = 4096

// SquareBlocks returns the number of blocks of n elements. The last block may be shorter.
func SquareBlocks(n int) int { return (n + SquareBlock - 1) / SquareBlock }
