package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// Config is the configuration of a model in Hugging Face's form, config.json.
type Config struct {
	Model model.Config // shape only
	End   int32        // the token that ends a text; -1 if the file names none, or several
	Text  []byte       // the whole file, keys that mean nothing here included

	kind   kind
	beside []model.Weight // tensors that the files have besides those of the model
}

// kind is what a model type of Hugging Face's has of its own.
type kind struct {
	name    string   // model_type
	prefix  string   // of the names of tensors where a model with its head wrote them
	token   string   // name of the embedding
	buffers []string // ends of the names of tensors that are no weights
	read    func(k keys) (model.Config, error)
	write   func(c model.Config, end int32) any // as JSON marshals

	names   func(e moe.Experts) []renaming                                // nil: there are none
	refuses func(c model.Config) error                                    // what a model of these layers may have that it cannot describe; nil: nothing
	beside  func(k keys, c model.Config) (list []model.Weight, err error) // see Config; nil: none
}

// kinds lists the model types whose weights can be imported.
var kinds = []kind{kindGPT2, kindLlama, kindMixtral, kindLlamaMoE}

// kindOf returns the model type that a model is written as.
func kindOf(c model.Config) kind {
	switch {
	case c.Family != familyLlama:
		return kindGPT2
	case model.KindOf[moe.Experts](c).Count == 0:
		return kindLlama
	case refusesMixtral(c) == nil:
		return kindMixtral
	}
	return kindLlamaMoE
}

// Limits of a shape. Real models stay far below; within them no product of
// dimensions overflows.
const (
	maxBlocks  = 1 << 12
	maxHidden  = 1 << 17
	maxTokens  = 1 << 24 // vocabulary, positions
	maxExperts = 1 << 16 // of all blocks
)

// ParseConfig reads config.json. Defaults are those of Hugging Face's configuration of
// the model type. Errors name key and byte: another model type, a shape out of range,
// or arithmetic that the layers here do not do.
func ParseConfig(source []byte) (Config, error) {
	k, err := members(value{json: source})
	if err != nil {
		return Config{}, err
	}
	name, err := k["model_type"].text()
	i := slices.IndexFunc(kinds, func(is kind) bool { return is.name == name })
	if err != nil || i < 0 {
		var names []string
		for _, is := range kinds {
			names = append(names, is.name)
		}
		return Config{}, k.fail("model_type", "%.100s is not supported, want one of %s", k["model_type"].json, strings.Join(names, ", "))
	}
	c := Config{End: -1, Text: source, kind: kinds[i]}
	if c.Model, err = c.kind.read(k); err != nil {
		return Config{}, err
	}
	if c.kind.beside != nil {
		if c.beside, err = c.kind.beside(k, c.Model); err != nil {
			return Config{}, err
		}
	}
	if v, ok := k["eos_token_id"]; ok {
		if id, err := v.integer(); err == nil && id < int64(c.Model.Vocab) {
			c.End = int32(id)
		}
	}
	return c, nil
}

// NewConfig returns the configuration of a model of this shape, as Hugging Face's
// loader reads it: without dropout, of which the layers have none, and with the
// special token of GPT-2's vocabulary or, as those of others are not known, none.
// Both would be the model type's were they left out.
func NewConfig(c model.Config) Config {
	if c.Vocab == gpt2Vocab {
		return EndingConfig(c, gpt2EndOfText)
	}
	return EndingConfig(c, -1)
}

// EndingConfig is NewConfig of a model whose texts end with a token; -1 is none.
func EndingConfig(c model.Config, end int32) Config { return kindOf(c).config(c, end) }

// config returns the configuration of a model of the type.
func (is kind) config(c model.Config, end int32) Config {
	shape := model.Config{
		Family: c.Family, Blocks: c.Blocks, Hidden: c.Hidden, Heads: c.Heads, Sequence: c.Sequence, Vocab: c.Vocab, Tied: c.Tied,
		KeyValueHeads: c.KeyValueHeads, Intermediate: c.Intermediate, NormEps: c.NormEps, Rope: c.Rope,
	}
	if e := model.KindOf[moe.Experts](c); e.Count > 0 {
		shape = shape.With(moe.Experts{Count: e.Count, Top: e.Top, Scale: e.Scale, Squashed: e.Squashed})
	}
	text, err := json.MarshalIndent(is.write(shape, end), "", "  ")
	if err != nil {
		panic("checkpoint: configuration does not marshal")
	}
	return Config{Model: shape, End: end, Text: append(text, '\n'), kind: is}
}

// stored returns the text of the configuration of weights that are stored as d. Where it
// names a type, of any member that does, it names this one; a text that names none is
// left as it is for float32, which that stands for, and every text for "", weights as
// they were.
func (c Config) stored(d DType) ([]byte, error) {
	text, named, by := c.Text, false, 0
	if d == "" {
		return text, nil
	}
	err := value{json: c.Text}.members(func(key string, v value) error {
		if key == "torch_dtype" || key == "dtype" { // Transformers from 4.56 on writes the second
			name := strconv.Quote(typeNames[d])
			text = slices.Replace(slices.Clone(text), int(v.at)+by, int(v.at)+by+len(v.json), []byte(name)...)
			by += len(name) - len(v.json)
			named = true
		}
		return nil
	})
	if err != nil || named || d == F32 {
		return text, err
	}
	rest := bytes.TrimLeft(text, " \t\r\n")[1:] // behind the brace: members follow, model_type is one
	return slices.Concat([]byte("{\n  \"torch_dtype\": "+strconv.Quote(typeNames[d])+","), rest), nil
}

// special returns a special token as configurations have it: null where there is none.
func special(id int32) *int32 {
	if id < 0 {
		return nil
	}
	return &id
}

// generation returns generation_config.json, which says how texts begin and end, as the
// configuration does.
func (c Config) generation() ([]byte, error) {
	tokens := map[string]json.RawMessage{beginKey: []byte("null"), "eos_token_id": []byte("null")}
	err := value{json: c.Text}.members(func(key string, v value) error {
		if _, ok := tokens[key]; ok {
			tokens[key] = v.json
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(tokens, "", "  ")
	return append(text, '\n'), err
}

// noDropout is a share as Python writes it: what reads the file may tell 0 from 0.0.
const noDropout = json.Number("0.0")

// only refuses a value that is none of some, as JSON decodes them, where the key is there:
// what would compute something else than the layers do.
func (k keys) only(key string, want ...any) error {
	v, ok := k[key]
	if !ok {
		return nil
	}
	var got any
	err := json.Unmarshal(v.json, &got)
	if err != nil || !slices.ContainsFunc(want, func(want any) bool { return equal(got, want) }) {
		return k.fail(key, "%.100s is not supported, want one of %v", v.json, named(want))
	}
	return nil
}

// named returns values as an error lists them: null as JSON writes it.
func named(list []any) string {
	var names []string
	for _, v := range list {
		if v == nil {
			v = "null"
		}
		names = append(names, fmt.Sprint(v))
	}
	return "[" + strings.Join(names, " ") + "]"
}
