package model

import "dynmo/src/tensor"

// StateTensor is one tensor of a layer's state as checkpoint files have it, with a name that is
// unique in the layer.
type StateTensor struct {
	Name  string
	DType tensor.DType
	Shape []int64 // of the whole tensor; nil: Mem is bytes of no known type
	Mem   tensor.Mem

	Sliced bool  // Mem is this replica's slice of the tensor, which may be empty or all
	First  int64 // byte of the whole tensor at which Mem begins
}

// Bytes returns the bytes of the whole tensor.
func (p StateTensor) Bytes() int64 {
	if p.Shape == nil {
		return p.Mem.Bytes
	}
	n := p.DType.Size()
	for _, size := range p.Shape {
		n *= size
	}
	return n
}

// Weights returns the weights of all parameters except Own ones and Copies. Pruned weights come with
// their structure: NAME.mask for a masked matrix, with one bit per entry; NAME.rows and NAME.columns
// for a matrix in CSR.
func (l *Layer) Weights() []StateTensor { return l.weights(false) }

// weights returns the weights of parameters that are a replica's own, or of all others.
func (l *Layer) weights(own bool) []StateTensor {
	var list []StateTensor
	for _, p := range l.params {
		if p.Own != own || p.Copy {
			continue
		}
		n := int64(p.Stored())
		values := StateTensor{Name: p.Name, DType: l.dtype, Shape: []int64{n}, Mem: p.W}
		if !p.Format.Sparse() && p.role != RolePlain {
			values.Shape = []int64{int64(p.Rows), int64(p.Cols)}
		}
		list = append(list, values)
		switch p.Format {
		case Masked:
			list = append(list, StateTensor{Name: p.Name + ".mask", DType: tensor.U64, Shape: []int64{p.Mask.Bytes / 8}, Mem: p.Mask})
		case CSR, BlockCSR:
			list = append(list,
				StateTensor{Name: p.Name + ".rows", DType: tensor.I32, Shape: []int64{int64(p.Rows) + 1}, Mem: p.RowPtr},
				StateTensor{Name: p.Name + ".columns", DType: tensor.I32, Shape: []int64{n}, Mem: p.ColIdx})
		}
	}
	return list
}

// Rest returns the layer's state without what Weights and OwnState return. pieces are masters,
// moments and memory that kinds registered; of a sliced layer, this replica's slices of the first
// two. texts are the sections that are text.
func (l *Layer) Rest() (pieces []StateTensor, texts []Section) {
	for _, s := range l.Sections() {
		switch {
		case s.Name == weightsSection || s.Name == indexSection:
		case s.ForUpdate():
			pieces = append(pieces, l.cutOut(s, 0, l.shared))
		case s.Mem.IsZero():
			texts = append(texts, s)
		default:
			pieces = append(pieces, StateTensor{Name: s.Name, Mem: s.Mem})
		}
	}
	return pieces, texts
}

// OwnState returns the weights, masters and moments of the parameters that only this replica updates
// (Param.Own); nil if the layer has no such parameters on any replica.
func (l *Layer) OwnState() []StateTensor {
	if !l.Own() {
		return nil
	}
	list := l.weights(true)
	for _, s := range l.Sections() {
		if s.ForUpdate() {
			list = append(list, l.cutOut(s, l.shared, l.own))
		}
	}
	return list
}

// cutOut returns elements [lo, hi) of a section of masters or moments; of a sliced layer, the part of
// them in this replica's slice.
func (l *Layer) cutOut(s Section, lo, hi int) StateTensor {
	wide, from, to, sliced := l.dtype.Wide(), max(lo, l.lo), min(hi, l.hi), l.Sliced()
	if lo == l.shared {
		from, to, sliced = lo, hi, false
	}
	return StateTensor{Name: s.Name, DType: wide, Shape: []int64{int64(hi - lo)}, Mem: l.kept(s.Mem, from, to), Sliced: sliced, First: int64(from-lo) * wide.Size()}
}
