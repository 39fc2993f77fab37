package model

import "dynmo/src/tensor"

// Piece is a part of a layer's state as files keep it. It has a name of its own in the layer, a
// type and a shape, and lies in memory.
type Piece struct {
	Name  string
	DType tensor.DType
	Shape []int64 // of all of it; nil: bytes of no known type
	Mem   tensor.Mem

	Sliced bool  // Mem is this replica's slice, which may be empty or all
	First  int64 // byte of all of it that Mem begins with
}

// Bytes returns the bytes of all of the piece.
func (p Piece) Bytes() int64 {
	if p.Shape == nil {
		return p.Mem.Bytes
	}
	n := p.DType.Size()
	for _, size := range p.Shape {
		n *= size
	}
	return n
}

// Weights returns the layer's weights by parameter, without those that are a replica's own. Pruned
// weights come with their structure: NAME.mask of a masked matrix, one bit for each entry;
// NAME.rows and NAME.columns of one in CSR.
func (l *Layer) Weights() []Piece { return l.weights(false) }

// weights returns the weights of parameters that are a replica's own, or of all others.
func (l *Layer) weights(own bool) []Piece {
	var list []Piece
	for _, p := range l.params {
		if p.Own != own || p.Copy {
			continue
		}
		n := int64(p.Stored())
		values := Piece{Name: p.Name, DType: l.dtype, Shape: []int64{n}, Mem: p.W}
		if !p.Format.Sparse() && p.role != RolePlain {
			values.Shape = []int64{int64(p.Rows), int64(p.Cols)}
		}
		list = append(list, values)
		switch p.Format {
		case Masked:
			list = append(list, Piece{Name: p.Name + ".mask", DType: tensor.U64, Shape: []int64{p.Mask.Bytes / 8}, Mem: p.Mask})
		case CSR, BlockCSR:
			list = append(list,
				Piece{Name: p.Name + ".rows", DType: tensor.I32, Shape: []int64{int64(p.Rows) + 1}, Mem: p.RowPtr},
				Piece{Name: p.Name + ".columns", DType: tensor.I32, Shape: []int64{n}, Mem: p.ColIdx})
		}
	}
	return list
}

// Rest returns what of the layer's state is neither in Weights nor a replica's own: pieces
// in memory, of a sliced layer this replica's slices of what the update reads, and sections
// that are text.
func (l *Layer) Rest() (pieces []Piece, texts []Section) {
	for _, s := range l.Sections() {
		switch {
		case s.Name == weightsSection || s.Name == indexSection:
		case s.ForUpdate():
			pieces = append(pieces, l.cutOut(s, 0, l.shared))
		case s.Mem.IsZero():
			texts = append(texts, s)
		default:
			pieces = append(pieces, Piece{Name: s.Name, Mem: s.Mem})
		}
	}
	return pieces, texts
}

// Alone returns all that a replica has of the layer's state alone, nothing where replicas
// share all: weights as Weights has the others, masters and moments as Rest.
func (l *Layer) Alone() []Piece {
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

// cutOut returns elements [lo, hi) of a section that only the update reads, or the slice of
// them that is here.
func (l *Layer) cutOut(s Section, lo, hi int) Piece {
	wide, from, to, sliced := l.dtype.Wide(), max(lo, l.lo), min(hi, l.hi), l.Sliced()
	if lo == l.shared {
		from, to, sliced = lo, hi, false
	}
	return Piece{Name: s.Name, DType: wide, Shape: []int64{int64(hi - lo)}, Mem: l.kept(s.Mem, from, to), Sliced: sliced, First: int64(from-lo) * wide.Size()}
}
