package kernel

import "dynmo/src/tensor"

// CSR is a sparse matrix (Rows, Cols) in compressed rows. RowPtr is I32 (Rows+1), ColIdx I32
// (NNZ) ascending in each row, Values (NNZ). RowPtr may begin above 0: then the matrix is rows
// of a larger one, with the entries of all of it. Blocks says that the entries are whole
// blocks of Block x Block elements, and that Rows and Cols are multiples of Block. So the
// values of Block rows are a dense matrix of their kept blocks, and products are faster.
type CSR struct {
	Rows, Cols, NNZ        int
	Blocks                 bool
	RowPtr, ColIdx, Values tensor.Mem
}

func (w *CSR) dims(n int) Dims { return Dims{N: n, C: w.Cols, O: w.Rows, NNZ: w.NNZ} }

// Buckets are the tokens of every head by bucket, as AttentionHash leaves them. Order is
// I32 (2·nh·n): sequence by sequence, of each head first the queries, then the keys, as
// positions in the sequence. Starts is I32 (b, nh, 2, Count+1): the beginning of each bucket
// in the head's queries or keys, and at the end their number.
type Buckets struct {
	Count         int  // a power of two
	Shared        bool // a token's key is in the bucket of its query
	Order, Starts tensor.Mem
}

// Routing holds the settings of BalanceScores, RouteTokens and RouteGradient.
type Routing struct {
	Deviation    float64 // BalanceScores stretches logits to this deviation; 0: they stay as they are
	Rounds       int     // of BalanceScores
	Room         int     // most tokens of an expert
	Shares       bool    // weights are shares of the chosen experts' probabilities; else these themselves
	Scale        float64
	Auxiliary, Z float64 // of the router's own losses
	Loss         float64 // of the gradients of these
}

// AdamW holds the settings of one update (Loshchilov & Hutter 2019), with g
// the gradient times GradScale:
//
//	m = β1·m + (1-β1)·g
//	v = β2·v + (1-β2)·g²
//	w -= LR·( (m/(1-β1^Step)) / (sqrt(v/(1-β2^Step)) + Eps) + Decay·w )
//
// Only the first Decayed elements decay.
type AdamW struct {
	LR, Beta1, Beta2, Eps, Decay float64
	Decayed                      int
	GradScale                    float64
	Step                         int // counts from 1
}
