package kernel

import "dynmo/src/tensor"

// Operands are the memory of a call, in the order of Operation.Operands.
type Operands [8]tensor.Mem

// Call is one call of a backend as data: an operation with its dimensions, operands and numbers.
// Fields that the operation does not have are ignored. The zero fields of Mem are absent operands.
type Call struct {
	Op Op
	Dims
	Mem     Operands
	First   int     // parameter first of SoftmaxMerge, SoftmaxGradient, CrossEntropy and PlaceTokens
	Scale   float64 // parameter scale of SoftmaxGradient and CrossEntropy
	Shared  bool    // Buckets.Shared of AttentionHash
	Eps     float64 // parameter eps of NormForward
	Inverse bool    // parameter inverse of Rotary
	Blocks  bool    // CSR.Blocks of SpMMForward, SpMMBackwardInput and SDDMM
	AdamW   AdamW   // of AdamWUpdate
	Prefix  uint32  // parameter prefix of MagnitudeHistogram; threshold of SelectLargest
	Fixed   int     // parameter fixed of MagnitudeHistogram
	Ties    int     // parameter ties of SelectLargest
	Routing Routing // of BalanceScores, RouteTokens and RouteGradient
	Depths  Depths  // of TakeTokens and ListTokens
}

// Flops returns the floating-point operations of the call.
func (c *Call) Flops() float64 {
	op := c.Op.Of()
	return float64(op.Flops) * float64(op.Work(&c.Dims))
}

// CSR is a sparse matrix (Rows, Cols) in compressed rows. Entry e of row r, for RowPtr[r] <= e <
// RowPtr[r+1], is Values[e] in column ColIdx[e]. Columns ascend in each row.
//
// A CSR may be some rows of a larger matrix. Then ColIdx and Values are those of the larger matrix,
// NNZ counts its entries, and RowPtr begins above 0.
type CSR struct {
	Rows, Cols, NNZ int
	// Blocks says that the entries are whole blocks of Block x Block elements, and that Rows and Cols
	// are multiples of Block. Then Block consecutive rows have the same columns. Their values are a
	// dense matrix (Block, entries of a row), so products are faster. ColIdx has every element's
	// column all the same.
	Blocks bool
	RowPtr tensor.Mem // I32 (Rows+1)
	ColIdx tensor.Mem // I32 (NNZ)
	Values tensor.Mem // DType (NNZ)
}

func (w *CSR) dims(n int) Dims { return Dims{N: n, C: w.Cols, O: w.Rows, NNZ: w.NNZ} }

// Buckets are the tokens of every head, sorted by bucket. AttentionHash writes Order and Starts, and
// SparseAttentionForward and SparseAttentionBackward read them.
type Buckets struct {
	Count  int  // number of buckets, a power of two
	Shared bool // a token's key is in the bucket of its query
	// Order is I32 (2·nh·n), by sequence, then head: first the head's queries, then its keys. An
	// element is the position of a query or key in its sequence.
	Order tensor.Mem
	// Starts is I32 (b, nh, 2, Count+1), for queries, then keys, of each head: where each bucket
	// begins among them, then their number.
	Starts tensor.Mem
}

// Routing holds the settings of BalanceScores, RouteTokens and RouteGradient.
type Routing struct {
	Deviation float64 // standard deviation to which BalanceScores stretches logits; 0: it does not stretch them
	Rounds    int     // rounds of BalanceScores
	Room      int     // most tokens that an expert accepts in a call
	Shares    bool    // a choice weighs p divided by the sum of p over the token's choices; otherwise p
	Scale     float64 // factor of the weights of choices
	Auxiliary float64 // weight of the router's loss for equal use of experts
	Z         float64 // weight of the router's loss for small logits (lse²)
	Loss      float64 // factor of the gradient of these two losses in RouteGradient
}

// AdamW holds the settings of one update (Loshchilov & Hutter 2019). With the gradient g times
// GradScale,
//
//	m = β1·m + (1-β1)·g
//	v = β2·v + (1-β2)·g²
//	w -= LR·( (m/(1-β1^Step)) / (sqrt(v/(1-β2^Step)) + Eps) + Decay·w )
type AdamW struct {
	LR, Beta1, Beta2, Eps, Decay float64
	Decayed                      int     // the first Decayed of the n elements decay; Decay is 0 for the others
	GradScale                    float64 // factor of the gradient, 1 or less where the norm is clipped
	Step                         int     // number of this update, from 1
}
