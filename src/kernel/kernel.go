// Package kernel is the boundary to arithmetic: coarse calls on memory, that
// enqueue on a stream. Package ref defines what each call computes, in plain
// Go; every other backend agrees with it in kerneltest's conformance suite.
//
// Shapes are row-major. n is a number of tokens (batch b times sequence t), c
// channels, o output channels, v vocabulary, nh heads, kv heads with keys.
// Floating-point operands have the backend's DType unless a call says otherwise;
// wide ones, and the gradients of weights, have DType.Wide. A call checks the
// length and the space of its operands and panics if they are wrong: that is
// the caller's error. Operands do not overlap unless a call says so.
//
// A backend that does two operations in one call keeps their intermediate result
// out of memory, and may leave out its rounding.
//
// Every call is deterministic: equal operands give equal bits, whatever else
// runs and however the backend is threaded.
package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// LayerNormEps is the eps of LayerNorm, GPT-2's: it keeps rstd finite on a constant row.
const LayerNormEps = 1e-5

// Backend does the arithmetic of one rank. It is used by one goroutine. Operation
// describes the operands of each call, and Calls implements the typed calls.
type Backend interface {
	// Name returns "ref", "cpu", "cuda" or "null".
	Name() string
	// DType returns the element type of weights and activations.
	DType() tensor.DType
	// Identity returns everything but the binary that the bits of results depend on.
	Identity() string
	// Close gives back the backend's threads and memory. The backend is of
	// no use afterwards.
	Close() error
	// Run makes a call that is given as data. The methods below do the same.
	Run(s device.Stream, c Call)

	// EmbeddingForward sets out (n, c) to wte[tokens] + wpe[positions]. tokens and
	// positions are I32 (n); the tables have whole rows of c, whose number is not known.
	EmbeddingForward(s device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int)
	// EmbeddingBackward adds dout to the rows of dwte and dwpe it came from, in
	// ascending order of the tokens' places. dwpe may be absent; positions then do not matter.
	EmbeddingBackward(s device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int)

	// NormForward normalises the rows of inp (n, c). It is LayerNorm (Ba, Kiros & Hinton 2016):
	// out = (inp - mean)·rstd·weight + bias, rstd = 1/sqrt(var + eps), var the biased variance.
	// Without mean and bias it is RMSNorm (Zhang & Sennrich 2019), which takes the mean as 0:
	// out = inp·rstd·weight, rstd = 1/sqrt(mean_c(inp²) + eps). It stores mean and rstd (n), wide.
	NormForward(s device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int, eps float64)
	// NormBackwardInput adds to dinp (n, c), with
	// xhat = (inp - mean)·rstd and g = dout·weight,
	//
	//	dinp += rstd·(g - mean_c(g) - xhat·mean_c(g·xhat))
	//
	// Without mean it is RMSNorm's: xhat = inp·rstd, and mean_c(g) falls away.
	NormBackwardInput(s device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int)
	// NormBackwardInputTo sets dinp to the sum of add and the gradient that
	// NormBackwardInput adds.
	NormBackwardInputTo(s device.Stream, dinp, add, dout, inp, mean, rstd, weight tensor.Mem, n, c int)
	// NormBackwardWeight adds Σ_n dout·xhat to dweight (c) and Σ_n dout to dbias (c). RMSNorm
	// has neither mean nor dbias.
	NormBackwardWeight(s device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int)

	// MatmulForward sets out (n, o) = inp (n, c) · weight (o, c)ᵀ + bias (o). bias may be absent.
	MatmulForward(s device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int)
	// MatmulForwardAdd is MatmulForward, then Add of add (n, o).
	MatmulForwardAdd(s device.Stream, out, inp, weight, bias, add tensor.Mem, n, c, o int)
	// MatmulForwardGELU is MatmulForward into pre, then GELUForward of it into out.
	MatmulForwardGELU(s device.Stream, out, pre, inp, weight, bias tensor.Mem, n, c, o int)
	// MatmulBackwardInput sets dinp (n, c) = dout (n, o) · weight (o, c).
	MatmulBackwardInput(s device.Stream, dinp, dout, weight tensor.Mem, n, c, o int)
	// MatmulBackwardGELU is MatmulBackwardInput into dpre, then GELUBackward of it
	// at pre, both (n, c).
	MatmulBackwardGELU(s device.Stream, dpre, dout, weight, pre tensor.Mem, n, c, o int)
	// MatmulBackwardWeight adds doutᵀ·inp to dweight (o, c) and Σ_n dout to dbias (o), which may be absent.
	MatmulBackwardWeight(s device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int)

	// SpMMForward sets out (n, w.Rows) = inp (n, w.Cols) · wᵀ + bias. bias may be absent.
	SpMMForward(s device.Stream, out, inp tensor.Mem, w CSR, bias tensor.Mem, n int)
	// SpMMBackwardInput sets dinp (n, w.Cols) = dout (n, w.Rows) · w.
	SpMMBackwardInput(s device.Stream, dinp, dout tensor.Mem, w CSR, n int)
	// SDDMM adds Σ_n dout[n,o]·inp[n,c] to dvalues (nnz) at each kept entry (o, c). It adds Σ_n
	// dout to dbias (w.Rows), which may be absent. w.Values is not read.
	SDDMM(s device.Stream, dvalues, dbias, dout, inp tensor.Mem, w CSR, n int)

	// Rotary rotates heads of hs channels, hs even, in place (Su et al. 2021). It rotates the first
	// `heads` heads of every row of qkv (n, width) by the angles of the row's position. With cos
	// and sin those of channel x < hs/2,
	//
	//	(q[x], q[x+hs/2]) = (q[x]·cos - q[x+hs/2]·sin, q[x+hs/2]·cos + q[x]·sin)
	//
	// inverse rotates by the opposite angles, as the gradient of a rotation is. positions, I32 (n),
	// are rows of table, wide rows of hs: hs/2 cosines, then hs/2 sines.
	Rotary(s device.Stream, qkv, positions, table tensor.Mem, n, heads, width, hs int, inverse bool)

	// AttentionForward is causal multi-head attention within each of b sequences.
	// offsets, I32 (b+1), ascends from 0 to n: sequence i is tokens
	// [offsets[i], offsets[i+1]), none of them more than longest; it may be empty.
	// qkv (n, c + 2·kv·c/nh) holds queries (nh, c/nh), keys and values, each (kv, c/nh),
	// kv a divisor of nh: head h has those of h/(nh/kv) (Ainslie et al. 2023). out is
	// (n, c). It stores lse (nh·n), wide, the logarithm of each row's softmax denominator of
	// the scores q·k/sqrt(c/nh): sequence by sequence, in each (nh, its tokens).
	AttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh, kv int)
	// AttentionBackward sets dqkv from dout, with the probabilities made again from qkv and lse.
	AttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh, kv int)

	// ShareKeys sets qkv (n, 3c) from queries and values, qv (n, 2c). It copies queries and values.
	// The key of each of nh heads is its query over the query's length, k = q/|q|; a length below
	// 1e-12 counts as 1e-12.
	ShareKeys(s device.Stream, qkv, qv tensor.Mem, n, c, nh int)
	// ShareKeysGradient sets dqv (n, 2c) from dqkv (n, 3c), with k and |q| as ShareKeys has
	// them:
	//
	//	dq = dqkv_q + (dqkv_k - k·Σ k·dqkv_k)/|q|, dv = dqkv_v
	ShareKeysGradient(s device.Stream, dqv, dqkv, qkv tensor.Mem, n, c, nh int)
	// AttentionHash sorts the tokens of every head of every sequence by bucket, its queries and its
	// keys apart, and stably. A query or key x of a head has products with vectors r_i, and with
	// their opposites: (x·r_0, …, -x·r_0, …). Its bucket is the place of the largest product, of
	// equal ones the first (Andoni et al. 2015). projections, wide (nh, h.Count/2, c/nh), are the
	// r_i. With h.Shared the bucket of a token's key is that of its query.
	//
	// Shapes of qkv and offsets are AttentionForward's. Here and in the two calls that follow all
	// heads have keys of their own. pairs, F64 (2), becomes the number of pairs that
	// SparseAttentionForward scores, and the number of pairs of causal attention.
	AttentionHash(s device.Stream, h Buckets, pairs, qkv, offsets, projections tensor.Mem, b, longest, n, c, nh int)
	// SparseAttentionForward is AttentionForward where a query sees of the keys at or
	// before its own position only those of the same bucket (Pagliardini et al. 2023). One
	// that sees none has output 0 and lse -Inf. With one bucket it is AttentionForward.
	SparseAttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, h Buckets, b, longest, n, c, nh int)
	// SparseAttentionBackward sets dqkv from dout, as AttentionBackward does.
	SparseAttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, h Buckets, b, longest, n, c, nh int)

	// GELUForward sets out = 0.5·x·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))) (Hendrycks & Gimpel 2016).
	GELUForward(s device.Stream, out, inp tensor.Mem, n int)
	// GELUBackward sets dinp = dout·gelu'(inp). dinp may be dout.
	GELUBackward(s device.Stream, dinp, inp, dout tensor.Mem, n int)
	// SwiGLUForward sets out (n, c) = silu(gate)·up, silu(x) = x/(1 + exp(-x)) (Shazeer
	// 2020). The rows of gateup (n, 2c) are gate, then up.
	SwiGLUForward(s device.Stream, out, gateup tensor.Mem, n, c int)
	// SwiGLUBackward sets dgateup (n, 2c): dout·up·silu'(gate), then dout·silu(gate).
	SwiGLUBackward(s device.Stream, dgateup, dout, gateup tensor.Mem, n, c int)
	// Add sets out = a + b. out may be a or b.
	Add(s device.Stream, out, a, b tensor.Mem, n int)
	// Accumulate is Add of wide elements.
	Accumulate(s device.Stream, out, a, b tensor.Mem, n int)
	// Round sets the bfloat16 elements of out (n) to the nearest of the wide elements of x; of
	// two that are as near, the even one. A NaN stays one.
	Round(s device.Stream, out, x tensor.Mem, n int)
	// AccumulateRounded is Accumulate of wide elements of a and bfloat16 elements of b. Without
	// a, out = b.
	AccumulateRounded(s device.Stream, out, a, b tensor.Mem, n int)
	// AccumulateFixed adds wide elements of x (n) to fixed-point numbers in sum, FixedWords(n) I64.
	// The first n words count units of 2^-50: each element is rounded to the nearest multiple (of
	// two equally near ones the even one). The word behind them is a bound: the largest |x| of
	// every call, rounded up, is added to it. Zeros are an empty sum.
	AccumulateFixed(s device.Stream, sum, x tensor.Mem, n int)
	// AddFixed adds other, a sum of AccumulateFixed, to sum.
	AddFixed(s device.Stream, sum, other tensor.Mem, n int)
	// RoundFixed sets wide elements of out (n) to the nearest to a sum of AccumulateFixed. If the
	// sum of the bounds is 2^13 or more, or not a number, elements may have overflowed: all are NaN.
	RoundFixed(s device.Stream, out, sum tensor.Mem, n int)

	// SoftmaxMerge joins the softmax's statistics of columns [first, first+v) of the logits to
	// before, the statistics of the columns to their left. The result goes to out. The columns are
	// logits (n, v) here. Both statistics are F64 (3, n): the largest logit, Σ exp(logit -
	// largest), and the logit of the target, 0 if its column is further right. before is absent at
	// the first columns. targets is I32 (n), in [0, vocabulary).
	SoftmaxMerge(s device.Stream, out, before, logits, targets tensor.Mem, n, v, first int)
	// SoftmaxGradient overwrites logits (n, v), the columns [first, first+v) of
	// their rows, with scale·(softmax(row) - onehot(target)). stats is F64 (3, n):
	// SoftmaxMerge's result for whole rows.
	SoftmaxGradient(s device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int)
	// CrossEntropy is SoftmaxMerge of a row's last columns, then SoftmaxGradient
	// of them with its result. It stores in loss, one F64, the sum over the rows
	// of -log softmax(row)[target], added in row order in float64.
	CrossEntropy(s device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int)
	// Likeliest sets out, I32 (n), to the column of the largest of each row of logits (n, v), of
	// equal ones the first. NaN is below all numbers. A row without a number above -Inf has column 0.
	Likeliest(s device.Stream, out, logits tensor.Mem, n, v int)

	// GatherRows sets row i of out (n, c) to factor[i] times row rows[i] of inp. inp has whole rows
	// of c; their number is not known. factor is wide. An absent factor is 1, and rows keep their
	// bits.
	GatherRows(s device.Stream, out, inp, rows, factor tensor.Mem, n, c int)
	// ScatterRows sets row rows[i] of out, whole rows of c, to keep[i] times itself plus
	// factor[i] times row i of add (n, c). No row is named twice. keep and factor are
	// wide; an absent factor is 1. Where keep is 0 and factor 1, the values are add's.
	ScatterRows(s device.Stream, out, add, rows, keep, factor tensor.Mem, n, c int)
	// GateGradient adds to dlogits, at each of n places rows[i],
	// factor[i]·Σ_c dout·(a - b) over row i of dout, a and b, (n, c). No place is named
	// twice. factor is wide.
	GateGradient(s device.Stream, dlogits, dout, a, b, rows, factor tensor.Mem, n, c int)

	// TakeTokens decides which of n tokens, in b sequences, a routed block takes (Raposo et al.
	// 2024). Sequence i is tokens [offsets[i], offsets[i+1]), offsets I32 (b+1). The first tokens
	// of a sequence are the First(d.Capacity, its tokens) with the largest logits (n), of equal
	// logits the earlier; NaN is below all numbers. The block takes these, or, where there are
	// guesses (n), the tokens with sigmoid(guess) > d.Threshold. taken, I32 (n), becomes 1 for a
	// token that is taken, else 0.
	//
	// A logit or guess z predicts whether its token is first (label 1 or 0). The gradient of its
	// binary cross-entropy is sigmoid(z) - label. dlogits (n) becomes d.Router times that of the
	// logits, dguesses (n) d.Predictor times that of the guesses.
	//
	// readings, F64 (5), become: n; the tokens taken; the correct predictions; and 1000 times the
	// sum of each cross-entropy. A prediction is sigmoid(logit) > 0.5, or the decision of the
	// guess. All is computed in float64.
	TakeTokens(s device.Stream, d Depths, taken, readings, dlogits, dguesses, logits, guesses, offsets tensor.Mem, n, b int)
	// ListTokens lists the tokens that TakeTokens took, k at most: rows, I32 (k), are where
	// among the n they are, ascending; factors, wide (2, k), their gates g, then 1-g, with
	// g = sigmoid(logit), or 1 if d.One; listed, I32 (k), their elements of positions, I32 (n).
	// Behind the last token all are 0. The tokens of sequence i have places [ends[i],
	// ends[i+1]), ends I32 (b+1).
	ListTokens(s device.Stream, d Depths, rows, factors, listed, ends, taken, logits, positions, offsets tensor.Mem, n, b, k int)

	// CombineRows sets row i of out (n, c) to Σ_j factor[i,j]·inp[rows[i,j]], in ascending order of
	// j. rows, I32 (n, k), and factor, wide, have k columns. An absent factor is 1. inp has whole
	// rows of c; their number is not known. A negative row counts nothing. A sum of one row by a
	// factor of 1 has the row's bits.
	CombineRows(s device.Stream, out, inp, rows, factor tensor.Mem, n, k, c int)
	// CombineRowsAdd is CombineRows, then Add of add (n, c).
	CombineRowsAdd(s device.Stream, out, inp, rows, factor, add tensor.Mem, n, k, c int)
	// CombineGradient sets dfactor[i,j], wide, to Σ_c dout[i]·inp[rows[i,j]], 0 of a
	// negative row. Shapes are CombineRows'.
	CombineGradient(s device.Stream, dfactor, dout, inp, rows tensor.Mem, n, k, c int)

	// SquashLogits computes a router's logits (Zhu et al. 2024). inp (n, experts) is the product of
	// tokens and the router's first matrix; weight (experts, experts) is the second matrix.
	// squashed becomes tanh(inp). In router, F64 (2, n, experts), the first half becomes
	// tanh(inp)·weightᵀ and the second tanh(inp). All is computed in float64.
	SquashLogits(s device.Stream, router, squashed, inp, weight tensor.Mem, n, experts int)
	// SquashGradient sets dinp (n, experts) from dout, the gradients of these logits, in
	// float64:
	//
	//	dinp = (dout·weight)·(1 - tanh²(inp))
	SquashGradient(s device.Stream, dinp, dout, inp, weight tensor.Mem, n, experts int)
	// BalanceScores sets the second half of router, F64 (2, n, experts), to scores by which experts
	// are chosen about equally often (Clark et al. 2022, S-BASE). logits are (n, experts); absent,
	// they are the first half of router. σ is the root of the mean variance of a token's logits. A
	// score is exp(r.Deviation/σ·(logit - the token's largest)), times a scale of its expert. Where
	// σ or r.Deviation is 0 the factor r.Deviation/σ is 1. The scales come from r.Rounds rounds of
	// Sinkhorn & Knopp 1967: then rows scaled to sum 1 have columns of about equal sums. All is
	// computed in float64.
	BalanceScores(s device.Stream, r Routing, router, logits tensor.Mem, n, experts int)
	// RouteTokens chooses k of the experts for every token. logits are (n, experts); absent, they
	// are the first half of router. p is the softmax of a token's logits. A token chooses the
	// experts with the largest p, or with the largest scores, F64 (n, experts), where these are
	// given; of equal ones the first. scores may be the second half of router. chosen, I32 (n, k),
	// begins with the largest.
	//
	// The first r.Room choices of each expert stay: first choices before second ones, then earlier
	// tokens before later ones. The others become -1. weights, wide (n, k), are r.Scale·p of the
	// chosen experts, 0 where a choice did not stay. With r.Shares they are divided by Σ p over the
	// token's chosen experts.
	//
	// It stores the operands of RouteGradient in router, F64 (2, n, experts). The first half
	// becomes p; with r.Shares it becomes the shares of the chosen experts and 0 elsewhere. The
	// second half becomes, for each token, the gradient by the logits of
	//
	//	r.Auxiliary·experts·Σ_e f_e·p_e + r.Z·lse²
	//
	// with f_e the share of expert e in all choices, and lse the logarithm of the softmax's
	// denominator (Fedus et al. 2022; Zoph et al. 2022). f counts as a constant.
	//
	// readings, F64 (4+experts), become: n; the choices that did not stay; 1000 times the sum over
	// the tokens of experts·Σ_e f_e·p_e; 1000 times the sum of lse²; and the tokens of each expert.
	// All is computed in float64.
	RouteTokens(s device.Stream, r Routing, chosen, weights, router, readings, logits, scores tensor.Mem, n, experts, k int)
	// RouteGradient sets dlogits (n, experts) from the gradients of weights, wide (n, k), and
	// what RouteTokens stored: with p and own the halves of router and h_e = r.Scale·p_e·dweight
	// of a token's chosen experts, 0 of others,
	//
	//	dlogit_e = r.Loss·own_e + h_e - p_e·Σ h
	RouteGradient(s device.Stream, r Routing, dlogits, dweights, chosen, router tensor.Mem, n, experts, k int)
	// PlaceTokens sorts the choices of RouteTokens that are experts [first, first+experts) by
	// expert, and those of an expert by token: places, I32 (n, k), is where each went, -1 for
	// the others. By place tokens, I32 (n·k), and factors, wide, become the choice's token and
	// weight; 0 behind the last place. The choices of expert first+e have places
	// [ends[e], ends[e+1]), I32 (experts+1).
	PlaceTokens(s device.Stream, places, tokens, factors, ends, chosen, weights tensor.Mem, n, experts, k, first int)
	// GroupedForward is MatmulForward of some rows by the matrix of each expert: rows
	// [ends[e], ends[e+1]) of out (n, o) become those of inp (n, c) times weights_eᵀ. ends is
	// I32 (experts+1), ascends from 0 and is at most n; rows behind it stay. Matrix e, (o, c),
	// begins at element e·(o·c + gap) of weights.
	GroupedForward(s device.Stream, out, inp, weights, ends tensor.Mem, n, c, o, experts, gap int)
	// GroupedBackwardInput is likewise MatmulBackwardInput: dinp (n, c) from dout (n, o).
	GroupedBackwardInput(s device.Stream, dinp, dout, weights, ends tensor.Mem, n, c, o, experts, gap int)
	// GroupedBackwardWeight is likewise MatmulBackwardWeight: it adds to dweights.
	GroupedBackwardWeight(s device.Stream, dweights, dout, inp, ends tensor.Mem, n, c, o, experts, gap int)

	// SumSquares stores in out, F64 (SquareBlocks(n)), Σ x² over every SquareBlock wide elements,
	// added in float64.
	SumSquares(s device.Stream, out, x tensor.Mem, n int)
	// AdamW updates w (n) and its moments m and v from the gradient g, all but w
	// wide. Where DType is narrower, master holds w before it was rounded, and is
	// updated in its place; else it is absent.
	AdamW(s device.Stream, w, master, m, v, g tensor.Mem, n int, a AdamW)
	// Mask sets to 0 the wide elements of x (n) whose bit in mask is 0. mask is U64, bit i%64 of word i/64.
	Mask(s device.Stream, x, mask tensor.Mem, n int)
	// MagnitudeHistogram adds to hist, 256 I64, counts of wide elements of x (n). An element's
	// magnitude is the bits of float32(|x|) as uint32, which order as |x| does. Elements count
	// whose first `fixed` bits are prefix (prefix is shifted down: fixed 8, prefix 0x3f). They
	// count by the 8 bits that follow. fixed is 0, 8, 16 or 24. Elements whose bit in mask is 0 do
	// not count; mask may be absent.
	MagnitudeHistogram(s device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int)

	// MaskWeights is Mask of elements of DType.
	MaskWeights(s device.Stream, x, mask tensor.Mem, n int)
	// SelectLargest sets bits of kept, a mask of n bits, for wide elements of x (n). It selects
	// every element whose magnitude (see MagnitudeHistogram) is above threshold, and the first
	// `ties` elements whose magnitude equals threshold. Elements whose bit in mask is 0 do not
	// count; mask may be absent. Bits of kept beyond the n elements are 0.
	SelectLargest(s device.Stream, kept, x, mask tensor.Mem, n int, threshold uint32, ties int)
	// MaskRanks sets ranks, I32 (ceil(n/64)+1), to the number of 1 bits of mask before
	// each of its words, and before its end. Bits from n on do not count.
	MaskRanks(s device.Stream, ranks, mask tensor.Mem, n int)
	// Compact sets out (nnz) to those of inp (n) whose bit in mask is 1, in order. ranks are
	// MaskRanks' of the mask, which has nnz such bits.
	Compact(s device.Stream, out, inp, mask, ranks tensor.Mem, n, nnz int)
	// CompactWide is Compact of wide elements.
	CompactWide(s device.Stream, out, inp, mask, ranks tensor.Mem, n, nnz int)
	// CompactRows sets w.RowPtr and w.ColIdx to the places of those entries of `from`
	// whose bit in mask is 1. Without from.RowPtr and from.ColIdx the entries are all
	// elements of a dense matrix in row order. w.Rows and w.Cols are from's; values are not
	// looked at. ranks are MaskRanks' of the mask of from.NNZ bits.
	CompactRows(s device.Stream, w, from CSR, mask, ranks tensor.Mem)

	// BlockScores sets scores, wide (nnz), to the sums of squares of blocks of 32 x 32 elements of
	// w, wide (1024·nnz). w is a matrix (32·o, 32·c), with its blocks in row order. A dense matrix
	// has o·c blocks. With rowPtr, I32 (32·o+1), the blocks are those of a matrix in compressed
	// rows. mask has a bit for each element of w. A block without a bit in mask has score 0, any
	// other at least Lowest. mask and rowPtr may be absent.
	BlockScores(s device.Stream, scores, w, mask, rowPtr tensor.Mem, c, o, nnz int)
	// BlockMask sets mask, a bit for each element that BlockScores has, to those of the
	// blocks whose bit in blocks is 1.
	BlockMask(s device.Stream, mask, blocks, rowPtr tensor.Mem, c, o, nnz int)
	// PairScores sets scores, wide (n), to the sum of the two smallest magnitudes of each four
	// elements of w, wide (4n). If one of the four has no bit in mask the score is 0, otherwise at
	// least Lowest. mask may be absent.
	PairScores(s device.Stream, scores, w, mask tensor.Mem, n int)
	// PairMask sets kept, a mask of 4n bits: all of every four elements of w, wide (4n),
	// whose bit in whole is 1, of others the two of the largest magnitude; of equal ones
	// those of lower index. Bits that mask, which may be absent, has come before any that
	// it lacks. Bits of kept that no element has are 0.
	PairMask(s device.Stream, kept, w, mask, whole tensor.Mem, n int)
}

const (
	// Block is the rows and columns of a block of BlockScores.
	Block = 32
	// Lowest is the smallest score of what is not pruned yet, the smallest normal float32.
	Lowest = 0x1p-126
)
