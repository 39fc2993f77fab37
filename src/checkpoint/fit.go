package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// maxPadding bounds the multiples that vocabularies are padded to: 128 for the sake of
// GPU kernels, times the ranks that share them in tensor parallelism, usually 8.
const maxPadding = 1024

// Fit returns the weights as those of a model that may have fewer positions, the first
// of these, and a padded vocabulary. Grain, seed and initialisation do not matter.
//
// Each row that is added to a matrix of the vocabulary is the mean of its rows (Hewitt
// 2021, "Initializing new word embeddings for pretrained language models"), so that the
// added tokens are no more probable than a token is in the (geometric) mean, and a loss
// is larger by at most ln(1 + added/true): zeros would have logits of 0, which are far
// above those of GPT-2. Errors name the setting that differs, and both values.
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
	fitted.Config, fitted.types, fitted.shards = NewConfig(c), nil, nil
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

// fits reports how a model differs from those that Fit makes of the weights.
func (w *Weights) fits(c model.Config) error {
	have := w.Config.Model
	theirs, ours := model.KindOf[moe.Experts](have), model.KindOf[moe.Experts](c)
	type setting struct {
		name       string
		have, want any
	}
	list := []setting{
		{"model.family", cmp.Or(have.Family, gpt2Type), cmp.Or(c.Family, gpt2Type)},
		{"model.blocks", have.Blocks, c.Blocks}, {"model.hidden", have.Hidden, c.Hidden}, {"model.heads", have.Heads, c.Heads},
		{"model.key_value_heads", have.KeyValueHeads, c.KeyValueHeads}, {"model.intermediate", have.Intermediate, c.Intermediate},
		{"model.norm_eps", have.NormEps, c.NormEps}, {"moe.experts", theirs.Count, ours.Count}, {"moe.top", theirs.Top, ours.Top},
		{"moe.router", router(theirs), router(ours)}, {"moe.scale", cmp.Or(theirs.Scale, 1), cmp.Or(ours.Scale, 1)},
		{"model.rope_base", have.Rope.Base, c.Rope.Base}, {"model.rope_scaling", scaling(have.Rope), scaling(c.Rope)},
		{"model.rope_factor", have.Rope.Factor, c.Rope.Factor}, {"model.rope_low_freq_factor", have.Rope.Low, c.Rope.Low},
		{"model.rope_high_freq_factor", have.Rope.High, c.Rope.High},
		{"model.rope_original_max_position_embeddings", have.Rope.Original, c.Rope.Original},
	}
	for _, s := range list {
		if s.have != s.want {
			return fmt.Errorf("%s is %v, the weights are of a model with %v", s.name, s.want, s.have)
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

// scaling returns the variant of rotary positions as settings name it.
func scaling(r model.Rope) string { return cmp.Or(r.Scaling, "none") }

// router returns the form of a router as settings name it.
func router(e moe.Experts) string {
	if e.Squashed {
		return "mlp"
	}
	return "linear"
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
