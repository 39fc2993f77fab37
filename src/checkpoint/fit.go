package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"dynmo/src/family"
	"dynmo/src/model"
)

// maxPadding bounds the multiples to which vocabularies are padded: 128 for GPU kernels, times the
// tensor-parallel ranks that divide the vocabulary, usually 8.
const maxPadding = 1024

// Fit returns the weights for a model with possibly fewer positions, the first ones, and a padded
// vocabulary. Grain, seed and initialisation need not match.
//
// Each added row of a matrix of the vocabulary is the mean of its rows. The source is Hewitt 2021,
// "Initializing new word embeddings for pretrained language models". So an added token is at most
// as probable as the (geometric) mean of the tokens. A loss is larger by at most ln(1 +
// added/true). Rows of zeros would give logits of 0, far above those of GPT-2. Errors name the
// setting that differs, and both values.
func (w *Weights) Fit(c model.Config) (*Weights, error) {
	if err := w.fits(c); err != nil {
		return nil, err
	}
	have := make(map[string]model.Weight)
	for _, p := range w.Config.Model.Weights() {
		have[p.Name] = p
	}
	means := make(map[string][]byte)
	fitted := *w
	fitted.Config, fitted.types, fitted.shards = newConfig(c), nil, nil
	fitted.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		from := have[p.Name]
		n := from.Shape[0]
		values, err := w.floats(from, min(lo, n), min(hi, n))
		if err != nil {
			return nil, err
		}
		dst = append(dst, values...)
		if hi <= n {
			return dst, nil
		}
		if means[p.Name] == nil {
			if means[p.Name], err = w.mean(from); err != nil {
				return nil, err
			}
		}
		return append(dst, bytes.Repeat(means[p.Name], int(hi-max(lo, n)))...), nil
	}
	return &fitted, nil
}

// fits returns an error that names a setting in which a model differs from the models that Fit can
// make.
func (w *Weights) fits(c model.Config) error {
	have := w.Config.Model
	settings := func(c model.Config) []family.Setting {
		return append([]family.Setting{
			{Name: "model.family", Value: c.FamilyName()}, {Name: "model.blocks", Value: c.Blocks},
			{Name: "model.hidden", Value: c.Hidden}, {Name: "model.heads", Value: c.Heads},
		}, family.SettingsOf(c)...)
	}
	wanted := settings(c)
	for i, s := range settings(have) {
		if s != wanted[i] {
			return fmt.Errorf("%s is %v, the weights are of a model with %v", s.Name, wanted[i].Value, s.Value)
		}
	}
	most := (have.Vocab + maxPadding - 1) / maxPadding * maxPadding
	switch {
	case c.Sequence > have.Sequence:
		return fmt.Errorf("model.sequence is %d, the weights are of a model with %d positions, want at most these", c.Sequence, have.Sequence)
	case c.Vocab < have.Vocab || c.Vocab > most:
		return fmt.Errorf("model.vocab is %d, the weights are of a model with %d, want that or, to pad it, at most %d", c.Vocab, have.Vocab, most)
	case c.Tied != have.Tied:
		return fmt.Errorf("the model's head is tied: %v; that of the weights: %v", c.Tied, have.Tied)
	}
	return nil
}

// mean returns the mean of the rows of a matrix.
func (w *Weights) mean(p model.Weight) ([]byte, error) {
	sums := make([]float64, p.Row()/4)
	piece := max(1, loadBytes/p.Row())
	for lo := int64(0); lo < p.Shape[0]; lo += piece {
		values, err := w.floats(p, lo, min(lo+piece, p.Shape[0]))
		if err != nil {
			return nil, err
		}
		for i := range len(values) / 4 {
			sums[i%len(sums)] += float64(math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:])))
		}
	}
	var mean []byte
	for _, sum := range sums {
		mean = binary.LittleEndian.AppendUint32(mean, math.Float32bits(float32(sum/float64(p.Shape[0]))))
	}
	return mean, nil
}
