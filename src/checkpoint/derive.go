package checkpoint

import "dynmo/src/model"

// Derivation makes the weights of a model from those of another.
type Derivation interface {
	// Source returns the weight of the other model whose type a weight takes. A weight that
	// stays is its own.
	Source(p model.Weight) model.Weight
	// Rows appends rows [lo, hi) of a weight that does not stay. read returns the values of
	// a weight of the other model. drawn says that the rows are float32.
	Rows(dst []byte, p model.Weight, lo, hi int64, read func(model.Weight) ([]byte, error)) (rows []byte, drawn bool, err error)
}

// Derive returns the weights of another model, with the tokenizer of this. They are made from
// w when they are asked for.
func (w *Weights) Derive(c model.Config, by Derivation) (*Weights, error) {
	made := &Weights{Config: EndingConfig(c, w.Config.End), Tokenizer: w.Tokenizer, types: make(map[string]DType), close: w.close}
	made.Prefix = made.Config.form.Prefix
	var first DType // of the weights that do not stay
	for _, p := range c.Weights() {
		from := by.Source(p)
		made.types[p.Name] = w.dtype(from)
		if first == "" && from.Name != p.Name {
			first = w.dtype(from)
		}
	}
	read := func(p model.Weight) ([]byte, error) { return w.rows(nil, p, 0, p.Shape[0]) }
	made.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		from := by.Source(p)
		if from.Name == p.Name {
			return w.rows(dst, p, lo, hi)
		}
		rows, drawn, err := by.Rows(nil, p, lo, hi, read)
		if err == nil && drawn {
			rows, err = convert(rows, F32, w.dtype(from))
		}
		return append(dst, rows...), err
	}
	var err error
	made.Config.Text, err = made.Config.stored(first)
	return made, err
}
