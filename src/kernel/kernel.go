package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// LayerNormEps is the eps of LayerNorm, GPT-2's: it keeps rstd finite on a constant row.
const LayerNormEps = 1e-5

// Backend does the arithmetic of one rank. One goroutine uses a Backend. Operation describes the
// operands of each call, and Calls implements the typed calls below.
type Backend interface {
	// Name returns "ref", "cpu", "cuda" or "null".
	Name() string
	// DType returns the element type of weights and activations.
	DType() tensor.DType
	// Products returns the type that operands of dense products (MatmulForward to
	// MatmulBackwardWeight, GroupedForward to GroupedBackwardWeight) are rounded to, to nearest: DType,
	// or BF16 where DType is F32. Products are then summed in float32. Biases are not rounded.
	Products() tensor.DType
	// Identity names the library, the instruction set and whatever else the bits of results depend
	// on. Equal binaries with equal identities give equal bits.
	Identity() string
	// Close gives back the backend's threads and memory. Nothing is called afterwards.
	Close() error
	// Run makes the call that c describes. The typed calls below do the same.
	Run(s device.Stream, c Call)

	// EmbeddingForward sets out (n, c) to wte[tokens] + wpe[positions]. tokens and positions are
	// I32 (n). The tables wte and wpe have rows of c elements; any number of rows is allowed.
	EmbeddingForward(s device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int)
	// EmbeddingBackward adds row i of dout (n, c) to row tokens[i] of dwte and to row positions[i]
	// of dwpe, in ascending order of i. dwpe may be absent; positions then do not matter.
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
	// Without mean it is the gradient of RMSNorm: xhat = inp·rstd, and mean_c(g) is left out.
	NormBackwardInput(s device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int)
	// NormBackwardInputTo sets dinp to the sum of add and the gradient that
	// NormBackwardInput adds.
	NormBackwardInputTo(s device.Stream, dinp, add, dout, inp, mean, rstd, weight tensor.Mem, n, c int)
	// NormBackwardWeight adds Σ_n dout·xhat to dweight (c) and Σ_n dout to dbias (c). For RMSNorm
	// mean and dbias are absent.
	NormBackwardWeight(s device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int)

	// MatmulForward sets out (n, o) = inp (n, c) · weight (o, c)ᵀ + bias (o). bias may be absent.
	MatmulForward(s device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int)
	// MatmulForwardAdd is MatmulForward, then Add of add (n, o).
	MatmulForwardAdd(s device.Stream, out, inp, weight, bias, add tensor.Mem, n, c, o int)
	// MatmulForwardGELU is MatmulForward into pre (n, o), then GELUForward of pre into out (n, o).
	MatmulForwardGELU(s device.Stream, out, pre, inp, weight, bias tensor.Mem, n, c, o int)
	// MatmulBackwardInput sets dinp (n, c) = dout (n, o) · weight (o, c).
	MatmulBackwardInput(s device.Stream, dinp, dout, weight tensor.Mem, n, c, o int)
	// MatmulBackwardGELU is MatmulBackwardInput into dpre (n, c), then GELUBackward of dpre at pre
	// (n, c), in place.
	MatmulBackwardGELU(s device.Stream, dpre, dout, weight, pre tensor.Mem, n, c, o int)
	// MatmulBackwardWeight adds doutᵀ·inp to dweight (o, c) and Σ_n dout to dbias (o), which may be absent.
	MatmulBackwardWeight(s device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int)

	// SpMMForward sets out (n, w.Rows) = inp (n, w.Cols) · wᵀ + bias. bias may be absent.
	SpMMForward(s device.Stream, out, inp tensor.Mem, w CSR, bias tensor.Mem, n int)
	// SpMMBackwardInput sets dinp (n, w.Cols) = dout (n, w.Rows) · w.
	SpMMBackwardInput(s device.Stream, dinp, dout tensor.Mem, w CSR, n int)
	// SDDMM adds Σ_n dout[n,o]·inp[n,c] to dvalues (nnz) for each entry (o, c) of w. It adds Σ_n
	// dout to dbias (w.Rows), which may be absent. w.Values is not read.
	SDDMM(s device.Stream, dvalues, dbias, dout, inp tensor.Mem, w CSR, n int)

	// Rotary rotates heads of hs channels, hs even, in place (Su et al. 2021). It rotates the first
	// `heads` heads of every row of qkv (n, width) by the angles of the row's position. With cos
	// and sin those of channel x < hs/2,
	//
	//	(q[x], q[x+hs/2]) = (q[x]·cos - q[x+hs/2]·sin, q[x+hs/2]·cos + q[x]·sin)
	//
	// With inverse it rotates by the opposite angles, which gives the gradient. positions, I32 (n),
	// are numbers of rows of table. A row of table has hs wide elements: hs/2 cosines, then hs/2
	// sines.
	Rotary(s device.Stream, qkv, positions, table tensor.Mem, n, heads, width, hs int, inverse bool)

	// AttentionForward is causal multi-head attention within each of b sequences. offsets, I32
	// (b+1), ascends from 0 to n: sequence i is tokens [offsets[i], offsets[i+1]). A sequence may be
	// empty and has at most `longest` tokens.
	//
	// A row of qkv (n, c + 2·kv·c/nh) is queries (nh, c/nh), then keys (kv, c/nh), then values (kv,
	// c/nh). kv divides nh: head h uses keys and values h/(nh/kv) (Ainslie et al. 2023). out is (n,
	// c). lse (nh·n), wide, becomes the logarithm of the softmax's denominator, for every head and
	// token, of the scores q·k/sqrt(c/nh). lse is ordered by sequence, then head, then token.
	AttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh, kv int)
	// AttentionBackward sets dqkv, the gradient of qkv, from dout. It computes the probabilities
	// again from qkv and lse.
	AttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh, kv int)

	// ShareKeys sets qkv (n, 3c) from queries and values, qv (n, 2c). It copies queries and values.
	// The key of each of nh heads is the head's query divided by its length, k = q/|q|. A length
	// below 1e-12 counts as 1e-12.
	ShareKeys(s device.Stream, qkv, qv tensor.Mem, n, c, nh int)
	// ShareKeysGradient sets dqv (n, 2c) from dqkv (n, 3c), with k and |q| as ShareKeys has
	// them:
	//
	//	dq = dqkv_q + (dqkv_k - k·Σ k·dqkv_k)/|q|, dv = dqkv_v
	ShareKeysGradient(s device.Stream, dqv, dqkv, qkv tensor.Mem, n, c, nh int)
	// AttentionHash sorts the tokens of every head of every sequence by bucket. It sorts queries and
	// keys separately and stably, and writes the result into the memory of h.Order and h.Starts (see
	// Buckets). A query or key x of a head is multiplied with the head's vectors r_i, and with their
	// opposites: (x·r_0, …, -x·r_0, …). The bucket of x is the index of the largest product, the
	// first if several are equal (Andoni et al. 2015). projections, wide (nh, h.Count/2, c/nh), are
	// the r_i. With h.Shared the bucket of a token's key is the bucket of its query.
	//
	// AttentionHash, SparseAttentionForward and SparseAttentionBackward have kv = nh: qkv is (n,
	// 3c). offsets is as in AttentionForward. pairs[0] of pairs, F64 (2), becomes the number of pairs
	// of query and key that SparseAttentionForward scores; pairs[1] that of causal attention.
	AttentionHash(s device.Stream, h Buckets, pairs, qkv, offsets, projections tensor.Mem, b, longest, n, c, nh int)
	// SparseAttentionForward is AttentionForward in which a query sees only keys of its own bucket,
	// at or before its own position (Pagliardini et al. 2023). A query that sees no key has output 0
	// and lse -Inf. With one bucket it is AttentionForward.
	SparseAttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, h Buckets, b, longest, n, c, nh int)
	// SparseAttentionBackward sets dqkv from dout, as AttentionBackward does.
	SparseAttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, h Buckets, b, longest, n, c, nh int)

	// GELUForward sets out = 0.5·x·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))) (Hendrycks & Gimpel 2016).
	GELUForward(s device.Stream, out, inp tensor.Mem, n int)
	// GELUBackward sets dinp = dout·gelu'(inp). dinp may be the same memory as dout.
	GELUBackward(s device.Stream, dinp, inp, dout tensor.Mem, n int)
	// SwiGLUForward sets out (n, c) = silu(gate)·up, silu(x) = x/(1 + exp(-x)) (Shazeer
	// 2020). The rows of gateup (n, 2c) are gate, then up.
	SwiGLUForward(s device.Stream, out, gateup tensor.Mem, n, c int)
	// SwiGLUBackward sets dgateup (n, 2c): dout·up·silu'(gate), then dout·silu(gate).
	SwiGLUBackward(s device.Stream, dgateup, dout, gateup tensor.Mem, n, c int)
	// Add sets out = a + b. out may be the same memory as a or b.
	Add(s device.Stream, out, a, b tensor.Mem, n int)
	// Accumulate is Add of wide elements.
	Accumulate(s device.Stream, out, a, b tensor.Mem, n int)
	// Round rounds wide elements x (n) to the nearest bfloat16 elements out (n), halfway cases to
	// the even one. A NaN stays a NaN.
	Round(s device.Stream, out, x tensor.Mem, n int)
	// AccumulateRounded sets wide out = a + b for wide a and bfloat16 b. If a is absent, out = b.
	AccumulateRounded(s device.Stream, out, a, b tensor.Mem, n int)
	// AccumulateFixed adds wide elements x (n) to n fixed-point sums. sum is I64 (FixedWords(n)).
	// sum[i], i < n, counts units of 2^-50: x[i] is rounded to the nearest unit, halfway cases to the
	// even one. sum[n] is a bound on every |sum[i]|: each call adds its largest |x|, rounded up to a
	// unit. The bound stops at the largest I64, also if some x is not finite. All words 0 are empty
	// sums. Additions of integers are exact, so their order does not matter.
	AccumulateFixed(s device.Stream, sum, x tensor.Mem, n int)
	// AddFixed adds other to sum, words and bound. Both are as in AccumulateFixed.
	AddFixed(s device.Stream, sum, other tensor.Mem, n int)
	// RoundFixed sets wide elements of out (n) to the n sums of AccumulateFixed, rounded to nearest.
	// If the bound is the largest I64 (2^13 or more), sums may have overflowed: all of out is NaN.
	RoundFixed(s device.Stream, out, sum tensor.Mem, n int)

	// SoftmaxMerge computes statistics of the softmax over a row's columns from 0 to first+v. before
	// has the statistics of columns [0, first); it is absent if first is 0. logits (n, v) are the
	// columns [first, first+v). out gets the result. Statistics are F64 (3, n): the largest logit, Σ
	// exp(logit - largest), and the logit of the target, 0 if its column is further right. targets is
	// I32 (n), each in [0, vocabulary).
	SoftmaxMerge(s device.Stream, out, before, logits, targets tensor.Mem, n, v, first int)
	// SoftmaxGradient overwrites logits (n, v), the columns [first, first+v) of the rows, with
	// scale·(softmax(row) - onehot(target)). stats, F64 (3, n), is SoftmaxMerge's result for whole
	// rows.
	SoftmaxGradient(s device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int)
	// CrossEntropy is SoftmaxMerge of a row's last columns into out, then SoftmaxGradient of these
	// columns with out. loss, one F64, becomes the sum over the rows of -log softmax(row)[target],
	// added in row order in float64.
	CrossEntropy(s device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int)
	// Likeliest sets out, I32 (n), to the column of the largest logit of each row of logits (n, v).
	// If several are equal, the first column counts. NaN counts as below all numbers. A row without a number
	// above -Inf has column 0.
	Likeliest(s device.Stream, out, logits tensor.Mem, n, v int)

	// GatherRows sets row i of out (n, c) to factor[i] times row rows[i] of inp. inp has rows of c
	// elements; any number of rows is allowed. rows is I32 (n), factor wide (n). If factor is absent,
	// elements are copied bit for bit.
	GatherRows(s device.Stream, out, inp, rows, factor tensor.Mem, n, c int)
	// ScatterRows sets row rows[i] of out to keep[i] times this row plus factor[i] times row i of add
	// (n, c). out has rows of c elements; any number of rows is allowed. rows is I32 (n), with no number twice. keep and
	// factor are wide (n). An absent factor is 1. If keep is 0 and factor 1, values are copied.
	ScatterRows(s device.Stream, out, add, rows, keep, factor tensor.Mem, n, c int)
	// GateGradient adds factor[i]·Σ_c dout[i]·(a[i] - b[i]) to dlogits[rows[i]], for rows i of dout,
	// a and b, each (n, c). rows is I32 (n), with no number twice. factor is wide (n). dlogits has
	// elements of DType; any number of elements is allowed.
	GateGradient(s device.Stream, dlogits, dout, a, b, rows, factor tensor.Mem, n, c int)

	// TakeTokens decides which of n tokens, in b sequences, a routed block processes: takes (Raposo
	// et al. 2024). Sequence i is tokens [offsets[i], offsets[i+1]), offsets I32 (b+1). A token is
	// top-ranked if its logit is among the First(d.Capacity, tokens) largest logits (n) of its
	// sequence. Of equal logits the earlier ranks higher; NaN counts as below all numbers. Without
	// guesses the block takes the top-ranked tokens. With guesses (n) it takes the tokens with
	// sigmoid(guess) > d.Threshold. taken, I32 (n), becomes 1 for a token that is taken, else 0.
	//
	// A logit or guess z predicts whether its token is top-ranked (label 1 or 0). The gradient of its
	// binary cross-entropy by z is sigmoid(z) - label. dlogits (n) becomes d.Router times the
	// gradient of the logits. dguesses (n) becomes d.Predictor times the gradient of the guesses. It
	// is absent if guesses are.
	//
	// readings, F64 (5), become: n; the number of tokens taken; the number of correct predictions;
	// the sum of cross-entropies of the logits, in thousandths; the same of the guesses (0 without
	// guesses). The prediction of a token is taken = 1 with guesses, else sigmoid(logit) > 0.5. All
	// is computed in float64.
	TakeTokens(s device.Stream, d Depths, taken, readings, dlogits, dguesses, logits, guesses, offsets tensor.Mem, n, b int)
	// ListTokens lists the tokens that TakeTokens took, in ascending order. They must be at most k.
	// For the j-th of these tokens rows[j] becomes its number among the n tokens, and listed[j] its
	// element of positions, I32 (n). factors, wide (2, k), becomes its gate g at j, and 1-g at k+j,
	// with g = sigmoid(logit), or 1 if d.One. rows and listed are I32 (k). Elements after the last
	// token become 0. The tokens of sequence i have j in [ends[i], ends[i+1]), ends I32 (b+1).
	ListTokens(s device.Stream, d Depths, rows, factors, listed, ends, taken, logits, positions, offsets tensor.Mem, n, b, k int)

	// CombineRows sets row i of out (n, c) to Σ_j factor[i,j]·inp[rows[i,j]], added in ascending
	// order of j. rows is I32 (n, k), factor wide (n, k). An absent factor is 1. inp has rows of c
	// elements; any number of rows is allowed. A negative rows[i,j] is left out of the sum. A sum of
	// one row with factor 1 has this row's bits.
	CombineRows(s device.Stream, out, inp, rows, factor tensor.Mem, n, k, c int)
	// CombineRowsAdd is CombineRows, then Add of add (n, c).
	CombineRowsAdd(s device.Stream, out, inp, rows, factor, add tensor.Mem, n, k, c int)
	// CombineGradient sets dfactor[i,j], wide (n, k), to Σ_c dout[i]·inp[rows[i,j]], or to 0 if
	// rows[i,j] is negative. dout is (n, c); inp and rows are as in CombineRows.
	CombineGradient(s device.Stream, dfactor, dout, inp, rows tensor.Mem, n, k, c int)

	// SquashLogits computes a router's logits (Zhu et al. 2024). inp (n, experts) is the product of
	// tokens and the router's first matrix; weight (experts, experts) is the second matrix.
	// squashed (n, experts) becomes tanh(inp). router is F64 (2, n, experts). Its first half becomes
	// the logits tanh(inp)·weightᵀ, its second half tanh(inp). All is computed in float64.
	SquashLogits(s device.Stream, router, squashed, inp, weight tensor.Mem, n, experts int)
	// SquashGradient sets dinp (n, experts) from dout (n, experts), the gradients of the logits of
	// SquashLogits, in float64:
	//
	//	dinp = (dout·weight)·(1 - tanh²(inp))
	SquashGradient(s device.Stream, dinp, dout, inp, weight tensor.Mem, n, experts int)
	// BalanceScores sets the second half of router, F64 (2, n, experts), to scores. Choices by the
	// largest scores use all experts about equally often (Clark et al. 2022, S-BASE). logits are (n,
	// experts); if absent, they are the first half of router. Score = x·scale, with
	//
	//	x = exp(r.Deviation/σ·(logit - the token's largest logit))
	//
	// σ² is the mean over the n tokens of the variance of a token's logits over the experts. If σ or
	// r.Deviation is 0, the factor r.Deviation/σ is 1. Every expert has one scale, at first 1. There
	// are r.Rounds rounds (Sinkhorn & Knopp 1967). A round computes, for each token, row = Σ_experts
	// x·scale. Then it computes, for each expert, column = Σ_tokens x/row, and the new scale
	// n/experts/column. A column of at most
	// 1e-200 leaves the scale as it was. All is computed in float64.
	BalanceScores(s device.Stream, r Routing, router, logits tensor.Mem, n, experts int)
	// RouteTokens chooses k of the experts for every token. p is the softmax of a token's logits (n,
	// experts). A token chooses the experts with the largest scores, F64 (n, experts); if scores are
	// absent, the experts with the largest p. Of equal experts the first is chosen. chosen, I32 (n,
	// k), becomes the numbers of the experts, the best first.
	//
	// router, F64 (2, n, experts), is input and output. If logits are absent, its first half has the
	// logits. scores may be the second half. Afterwards it has what RouteGradient reads: see below.
	//
	// Every expert accepts at most r.Room choices: best choices before second-best ones, then
	// earlier tokens before later ones. A choice that is not accepted becomes -1 in chosen. weights,
	// wide (n, k), become r.Scale·p of the chosen experts, 0 for a choice that is not accepted. With
	// r.Shares p is divided by the sum of p over the token's k choices, accepted or not.
	//
	// The first half of router becomes p. With r.Shares it becomes these shares of the k chosen
	// experts, and 0 for other experts. The second half becomes, for each token, the gradient by the
	// logits of the router's own losses
	//
	//	r.Auxiliary·experts·Σ_e f_e·p_e + r.Z·lse²
	//
	// f_e, a constant for the gradient, is the share of expert e in all n·k choices. lse is the
	// logarithm of the softmax's denominator (Fedus et al. 2022; Zoph et al. 2022).
	//
	// readings, F64 (4+experts), become: n; the number of choices that are not accepted; the sum over
	// the tokens of experts·Σ_e f_e·p_e, in thousandths; the sum of lse², in thousandths; then the
	// number of accepted choices of each expert. All is computed in float64.
	RouteTokens(s device.Stream, r Routing, chosen, weights, router, readings, logits, scores tensor.Mem, n, experts, k int)
	// RouteGradient sets dlogits (n, experts) from dweights, wide (n, k), the gradients of weights.
	// chosen and router are as RouteTokens left them. p and own are the first and second half of
	// router. h_e is r.Scale·p_e·dweight for the accepted choice e of a token, and 0 for other
	// experts and for choices of -1:
	//
	//	dlogit_e = r.Loss·own_e + h_e - p_e·Σ h
	RouteGradient(s device.Stream, r Routing, dlogits, dweights, chosen, router tensor.Mem, n, experts, k int)
	// PlaceTokens sorts the choices of experts [first, first+experts) by expert, then by token.
	// chosen and weights are RouteTokens'. places, I32 (n, k), becomes the place of every choice in
	// this order, from 0; -1 for choices of other experts. tokens[place] becomes the choice's token
	// and factors[place] its weight; both are 0 after the last place. tokens is I32 (n·k), factors
	// wide (n·k). Expert first+e has places [ends[e], ends[e+1]), ends I32 (experts+1).
	PlaceTokens(s device.Stream, places, tokens, factors, ends, chosen, weights tensor.Mem, n, experts, k, first int)
	// GroupedForward multiplies the rows of every expert by the expert's matrix. Rows [ends[e],
	// ends[e+1]) of out (n, o) become the same rows of inp (n, c) times weights_eᵀ. ends, I32
	// (experts+1), ascends from 0 to at most n. Later rows of out do not change. Matrix e, (o, c),
	// begins at element e·(o·c + gap) of weights.
	GroupedForward(s device.Stream, out, inp, weights, ends tensor.Mem, n, c, o, experts, gap int)
	// GroupedBackwardInput sets these rows of dinp (n, c) to the rows of dout (n, o) times weights_e.
	GroupedBackwardInput(s device.Stream, dinp, dout, weights, ends tensor.Mem, n, c, o, experts, gap int)
	// GroupedBackwardWeight adds to matrix e of dweights, wide, the product of the expert's rows:
	// doutᵀ (o, rows) · inp (rows, c).
	GroupedBackwardWeight(s device.Stream, dweights, dout, inp, ends tensor.Mem, n, c, o, experts, gap int)

	// SumSquares sets out, F64 (SquareBlocks(n)), to Σ x² of every block of SquareBlock wide elements
	// of x (n), added in float64.
	SumSquares(s device.Stream, out, x tensor.Mem, n int)
	// AdamW updates the weights w (n) and their wide moments m and v from the wide gradient g, as
	// the type AdamW says. If DType is not wide, the wide master has the unrounded weights: master is
	// updated, and w becomes master rounded. If DType is wide, master is absent.
	AdamW(s device.Stream, w, master, m, v, g tensor.Mem, n int, a AdamW)
	// Mask sets to 0 the wide elements of x (n) whose bit in mask is 0.
	Mask(s device.Stream, x, mask tensor.Mem, n int)
	// MagnitudeHistogram counts wide elements of x (n) by 8 bits of their magnitude, and adds the
	// counts to hist, I64 (256). An element's magnitude is the bits of float32(|x|) as a uint32,
	// which order as |x| does. Only elements count whose highest `fixed` bits equal prefix, as in
	// fixed = 8, prefix = 0x3f. The 8 bits below them select the element of hist. fixed is 0, 8, 16
	// or 24. Elements whose bit in mask is 0 do not count; mask may be absent.
	MagnitudeHistogram(s device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int)

	// MaskWeights is Mask of elements of DType.
	MaskWeights(s device.Stream, x, mask tensor.Mem, n int)
	// SelectLargest sets kept, a mask, for wide elements of x (n). It selects every element whose
	// magnitude (see MagnitudeHistogram) is above threshold. It also selects the first `ties` elements
	// whose magnitude equals threshold. Bits of selected elements become 1, others 0. Elements whose bit in mask is 0 are not selected;
	// mask may be absent. Bits of kept beyond the n elements are 0.
	SelectLargest(s device.Stream, kept, x, mask tensor.Mem, n int, threshold uint32, ties int)
	// MaskRanks sets ranks, I32 (ceil(n/64)+1), to the number of 1 bits in mask before each of its
	// words. The last element of ranks is the number of all 1 bits. Bits from n on do not count.
	MaskRanks(s device.Stream, ranks, mask tensor.Mem, n int)
	// Compact sets out (nnz) to the elements of inp (n) whose bit in mask is 1, in order. ranks are
	// MaskRanks' of this mask, which has nnz bits that are 1.
	Compact(s device.Stream, out, inp, mask, ranks tensor.Mem, n, nnz int)
	// CompactWide is Compact of wide elements.
	CompactWide(s device.Stream, out, inp, mask, ranks tensor.Mem, n, nnz int)
	// CompactRows sets w.RowPtr and w.ColIdx to the rows and columns of the entries of `from` whose
	// bit in mask is 1. If from.RowPtr and from.ColIdx are absent, from is dense: its entries are all
	// elements in row order. w has the Rows and Cols of from. Values are not read. mask has from.NNZ
	// bits; ranks are MaskRanks' of mask.
	CompactRows(s device.Stream, w, from CSR, mask, ranks tensor.Mem)

	// BlockScores sets scores, wide (nnz), to the sums of squares of blocks of Block x Block
	// elements. The matrix has o rows and c columns of blocks. w, wide (Block²·nnz), are the elements
	// of the nnz blocks, row by row of the matrix. So a block's rows lie apart. Scores are in order
	// of block rows, then block columns.
	//
	// If rowPtr is absent the matrix is dense, and nnz = o·c. Otherwise w are values of a CSR with
	// Blocks, and rowPtr, I32 (Block·o+1), is its RowPtr, which counts elements. mask has a bit for
	// each element of w; it may be absent. A block without a 1 bit in mask has score 0. Any other
	// block has a score of at least Lowest.
	BlockScores(s device.Stream, scores, w, mask, rowPtr tensor.Mem, c, o, nnz int)
	// BlockMask sets mask, a bit for each element of w of BlockScores: 1 for the elements of every
	// block whose bit in the mask blocks is 1.
	BlockMask(s device.Stream, mask, blocks, rowPtr tensor.Mem, c, o, nnz int)
	// PairScores sets scores, wide (n), to the sum of the two smallest |w| of each group of four
	// elements of w, wide (4n). If the mask bit of one of the four is 0, the score is 0; otherwise it
	// is at least Lowest. mask, of 4n bits, may be absent.
	PairScores(s device.Stream, scores, w, mask tensor.Mem, n int)
	// PairMask sets kept, a mask of 4n bits for w, wide (4n), whose elements form n groups of four.
	// If the group's bit in whole, a mask of n bits, is 1, all four bits become 1. Otherwise two bits
	// become 1. Elements whose bit in mask is 1 are chosen first, then larger magnitudes (see
	// MagnitudeHistogram), then lower indices. mask may be absent. Bits of kept beyond 4n are 0.
	PairMask(s device.Stream, kept, w, mask, whole tensor.Mem, n int)
}

const (
	// Block is the number of rows and of columns of a block (BlockScores, CSR.Blocks).
	Block = 32
	// Lowest is the smallest score of a block or a group of four that is not pruned yet: the
	// smallest normal float32.
	Lowest = 0x1p-126
)
