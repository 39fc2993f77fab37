package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"dynmo/src/model"
	"dynmo/src/model/family"
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
// settings that differ, and both values.
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

// everyFamily is how many settings of equal every family has. They come first.
const everyFamily = 5

// equal returns the settings that a model must share with weights.
func equal(c model.Config) []family.Setting {
	return append([]family.Setting{
		{Name: "model.family", Value: c.FamilyName()}, {Name: "model.blocks", Value: c.Blocks},
		{Name: "model.hidden", Value: c.Hidden}, {Name: "model.heads", Value: c.Heads}, {Name: "model.tied", Value: c.Tied},
	}, family.SettingsOf(c)...)
}

// fits compares a model with the models that Fit can make. The error names all settings that differ.
func (w *Weights) fits(c model.Config) error {
	have := w.Config.Model
	var wrong []string
	differs := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	wanted := equal(c)
	other := c.FamilyName() != have.FamilyName() // its settings are not those of this family
	for i, s := range equal(have) {
		if s != wanted[i] && !(other && i >= everyFamily) {
			differs("%s is %v, the weights have %v", s.Name, wanted[i].Value, s.Value)
		}
	}
	if c.Sequence > have.Sequence {
		differs("model.sequence is %d, the weights have %d positions, want at most these", c.Sequence, have.Sequence)
	}
	most := (have.Vocab + maxPadding - 1) / maxPadding * maxPadding
	if c.Vocab < have.Vocab || c.Vocab > most {
		differs("model.vocab is %d, the weights have %d, want that or, to pad it, at most %d", c.Vocab, have.Vocab, most)
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

// Settings returns the settings, in TOML, of a run that begins with the weights in the file `path`.
// Settings with their default value are left out. A table other than model is that of a kind of
// dynamism with the same name.
func (w *Weights) Settings(path string) string {
	c := w.Config.Model
	var tables []string // in order
	lines := make(map[string][]string)
	add := func(table, format string, args ...any) {
		if lines[table] == nil {
			tables = append(tables, table)
		}
		lines[table] = append(lines[table], fmt.Sprintf(format, args...))
	}
	add("model", "weights = %q", path)
	defaults := equal(model.Config{})
	for i, s := range equal(c) {
		table, key, _ := strings.Cut(s.Name, ".")
		switch text, isText := s.Value.(string); {
		case s.Value == defaults[i].Value && s.Name != "model.family" && s.Name != "model.tied":
		case isText:
			add(table, "%s = %q", key, text)
		default:
			add(table, "%s = %v", key, s.Value)
		}
	}
	add("model", "sequence = %d # at most", c.Sequence)
	add("model", "vocab = %d", c.Vocab)
	if kinds := tables[1:]; len(kinds) > 0 {
		add("dynamic", "kind = %q", strings.Join(kinds, "+"))
	}
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&b, "[%s]\n%s\n", table, strings.Join(lines[table], "\n"))
	}
	return b.String()
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
