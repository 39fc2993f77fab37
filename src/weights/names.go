package weights

import (
	"slices"

	"dynmo/src/model"
	"dynmo/src/model/family"
)

// nameOf converts a name to the form in the weights' files, without their prefix.
func (w *Weights) nameOf(name string) string {
	var list []family.Renaming
	switch form := w.Config.form; {
	case w.packed:
		list = form.Packed.Names
	case form.Names != nil:
		list = form.Names(w.Config.Model)
	}
	for _, r := range list {
		if r.From.MatchString(name) {
			return r.From.ReplaceAllString(name, r.To)
		}
	}
	return name
}

// piece is a tensor in Hugging Face's files, or some rows of a tensor if weights are packed. It has
// `rows` rows of a weight, from row `first` on.
type piece struct {
	Tensor
	weight      model.Weight
	first, rows int64
	at          int64 // rows of the tensor before the piece
}

// bytes returns the bytes of the piece's values as type d, or as their own type if d is "".
func (t piece) bytes(d DType) int64 {
	if d == "" {
		d = t.DType
	}
	return t.weight.Row() / 4 * t.rows * d.bytes()
}

// pieces returns the tensors in Hugging Face's file for a parameter, with their own types.
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
			w.pack(&t)
		}
		list = append(list, t)
		first += rows.Rows
	}
	return list
}

// pack turns a piece of a packed weight into rows of the common tensor.
func (w *Weights) pack(t *piece) {
	if index, of := w.Config.form.Packed.Place(w.Config.Model, t.weight.Name); of > 0 {
		rows := t.weight.Shape[0]
		t.at, t.Shape = index*rows+t.first, []int64{of, rows, t.weight.Shape[1]}
	}
}

// allPieces returns the pieces of the whole model. Pieces of one tensor are in order.
func (w *Weights) allPieces() (list []piece) {
	for _, p := range w.weights() {
		list = append(list, w.pieces(p)...)
	}
	return list
}
