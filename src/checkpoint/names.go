package checkpoint

import (
	"fmt"
	"regexp"
	"slices"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// renaming is how the names of some tensors differ from those of model.Weight, which are
// Mixtral's where there are experts.
type renaming struct {
	from *regexp.Regexp
	to   string
}

// Ends of Mixtral's names of tensors of a block with experts, and of the outer matrix of a
// router that has two.
var (
	mixtralRouter = regexp.MustCompile(`block_sparse_moe\.gate\.weight$`)
	outerRouter   = regexp.MustCompile(`block_sparse_moe\.gate\.outer\.weight$`)
	mixtralGate   = regexp.MustCompile(`block_sparse_moe\.experts\.(\d+)\.w1\.weight$`)
	mixtralUp     = regexp.MustCompile(`block_sparse_moe\.experts\.(\d+)\.w3\.weight$`)
	mixtralDown   = regexp.MustCompile(`block_sparse_moe\.experts\.(\d+)\.w2\.weight$`)
)

// Transformers from 5 on holds the experts of a block of Mixtral as two tensors.
const (
	packedGateUp = "mlp.experts.gate_up_proj"
	packedDown   = "mlp.experts.down_proj"
)

var packedNames = []renaming{{mixtralRouter, "mlp.gate.weight"}, {mixtralGate, packedGateUp}, {mixtralUp, packedGateUp}, {mixtralDown, packedDown}}

// nameOf returns a name as the weights' files have it, without their prefix.
func (w *Weights) nameOf(name string) string {
	list := packedNames
	if !w.packed {
		list = w.Config.kind.renamings(model.KindOf[moe.Experts](w.Config.Model))
	}
	for _, r := range list {
		if r.from.MatchString(name) {
			return r.from.ReplaceAllString(name, r.to)
		}
	}
	return name
}

// renamings returns how the names of a model type's tensors differ, if they do.
func (is kind) renamings(e moe.Experts) []renaming {
	if is.names == nil {
		return nil
	}
	return is.names(e)
}

// piece is a tensor of Hugging Face's files, or where the experts of a block are packed rows
// of one, which is rows of a weight from the first on.
type piece struct {
	Tensor
	weight      model.Weight
	first, rows int64
	at          int64 // rows of the tensor that lie before
}

// bytes returns the bytes of its values, of type d or, if it is "", of its own.
func (t piece) bytes(d DType) int64 {
	if d == "" {
		d = t.DType
	}
	return t.weight.Row() / 4 * t.rows * d.bytes()
}

// pieces returns the tensors that a parameter is in Hugging Face's file, of its own type.
func (w *Weights) pieces(p model.Weight) []piece {
	split := p.Split
	if split == nil {
		split = []model.Rows{{HuggingFace: p.HuggingFace, Rows: p.Shape[0]}}
	}
	prefix := w.Prefix
	if p.Outside {
		prefix = ""
	}
	var list []piece
	first := int64(0)
	for _, rows := range split {
		shape := append([]int64{rows.Rows}, p.Shape[1:]...)
		if p.Transposed {
			slices.Reverse(shape)
		}
		t := piece{Tensor{Name: prefix + w.nameOf(rows.HuggingFace), DType: w.dtype(p), Shape: shape}, p, first, rows.Rows, 0}
		if w.packed {
			t.pack(model.KindOf[moe.Experts](w.Config.Model).Count)
		}
		list = append(list, t)
		first += rows.Rows
	}
	return list
}

// pack makes a piece of an expert rows of the tensor of all experts.
func (t *piece) pack(experts int) {
	var block, expert int
	if n, _ := fmt.Sscanf(t.weight.Name, "block.%d/expert.%d.", &block, &expert); n == 2 {
		rows := t.weight.Shape[0]
		t.at, t.Shape = int64(expert)*rows+t.first, []int64{int64(experts), rows, t.weight.Shape[1]}
	}
}

// allPieces returns the pieces of the whole model, those of one tensor in their order.
func (w *Weights) allPieces() (list []piece) {
	for _, p := range w.weights() {
		list = append(list, w.pieces(p)...)
	}
	return list
}
