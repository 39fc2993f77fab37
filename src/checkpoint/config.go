package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/model"
)

// supported lists the model types whose weights can be imported.
var supported = []string{"gpt2"}

// Config is the configuration of a model in Hugging Face's form, config.json.
type Config struct {
	Model model.Config // shape only
	End   int32        // the token that ends a text; -1 if the file names none, or several
	Text  []byte       // the whole file, keys that mean nothing here included
}

// Limits of a shape. Real models stay far below; within them no product of
// dimensions overflows.
const (
	maxBlocks = 1 << 12
	maxHidden = 1 << 17
	maxTokens = 1 << 24 // vocabulary, positions
)

// ParseConfig reads config.json. Defaults are those of Hugging Face's
// GPT2Config. Errors name key and byte: another model type, a shape out of range,
// or arithmetic that the layers here do not do.
func ParseConfig(source []byte) (Config, error) {
	values := make(map[string]value)
	err := value{json: source}.members(func(key string, v value) error {
		values[key] = v
		return nil
	})
	if err != nil {
		return Config{}, err
	}
	fail := func(key, format string, args ...any) (Config, error) {
		return Config{}, fmt.Errorf("%s: %w", key, values[key].fail(format, args...))
	}
	if kind, err := values["model_type"].text(); err != nil || kind != supported[0] {
		return fail("model_type", "%.100s is not supported, want one of %s", values["model_type"].json, strings.Join(supported, ", "))
	}
	c := Config{Model: model.Config{Vocab: gpt2Vocab, Sequence: 1024, Hidden: 768, Blocks: 12, Heads: 12, Tied: true}, End: -1, Text: source}
	for _, d := range []struct {
		key   string
		value *int
		limit int64
	}{
		{"vocab_size", &c.Model.Vocab, maxTokens}, {"n_positions", &c.Model.Sequence, maxTokens},
		{"n_embd", &c.Model.Hidden, maxHidden}, {"n_layer", &c.Model.Blocks, maxBlocks}, {"n_head", &c.Model.Heads, maxHidden},
	} {
		v, ok := values[d.key]
		if !ok {
			continue
		}
		n, err := v.integer()
		if err != nil || n < 1 || n > d.limit {
			return fail(d.key, "%.100s: want an integer from 1 to %d", v.json, d.limit)
		}
		*d.value = int(n)
	}
	if c.Model.Hidden%c.Model.Heads != 0 {
		return fail("n_head", "%d does not divide n_embd, %d", c.Model.Heads, c.Model.Hidden)
	}
	if v, ok := values["tie_word_embeddings"]; ok {
		c.Model.Tied = string(v.json) == "true"
		if !c.Model.Tied && string(v.json) != "false" {
			return fail("tie_word_embeddings", "%.100s: want true or false", v.json)
		}
	}
	if v, ok := values["eos_token_id"]; ok {
		if id, err := v.integer(); err == nil && id < int64(c.Model.Vocab) {
			c.End = int32(id)
		}
	}
	return c, arithmetic(values, 4*c.Model.Hidden)
}

// arithmetic refuses what would compute something else than the layers do.
func arithmetic(values map[string]value, inner int) error {
	for _, rule := range []struct {
		key  string
		want []any // as JSON decodes
	}{
		{"n_inner", []any{nil, float64(inner)}},
		{"activation_function", []any{"gelu_new", "gelu_pytorch_tanh"}}, // one function, two names
		{"layer_norm_epsilon", []any{1e-5}},
		{"scale_attn_weights", []any{true}},
		{"scale_attn_by_inverse_layer_idx", []any{false}},
		{"add_cross_attention", []any{false}},
	} {
		v, ok := values[rule.key]
		if !ok {
			continue
		}
		var got any
		err := json.Unmarshal(v.json, &got)
		if err != nil || !slices.ContainsFunc(rule.want, func(want any) bool { return reflect.DeepEqual(got, want) }) {
			return fmt.Errorf("%s: %w", rule.key, v.fail("%.100s is not supported, want one of %v", v.json, rule.want))
		}
	}
	return nil
}

// noDropout is a share as Python writes it: what reads the file may tell 0 from 0.0.
const noDropout = json.Number("0.0")

// GPT-2's vocabulary, and the only one of its tokens that is special: it ends a text.
const (
	gpt2Vocab     = 50257
	gpt2EndOfText = 50256
)

// NewConfig returns the configuration of a model of this shape, as Hugging Face's
// loader reads it: without dropout, of which the layers have none, and with the
// special token of GPT-2's vocabulary or, as those of others are not known, none.
// Both would be GPT-2's were they left out.
func NewConfig(c model.Config) Config {
	if c.Vocab == gpt2Vocab {
		return EndingConfig(c, gpt2EndOfText)
	}
	return EndingConfig(c, -1)
}

// EndingConfig is NewConfig of a model whose texts end with a token; -1 is none.
func EndingConfig(c model.Config, end int32) Config {
	text, err := json.MarshalIndent(struct {
		Activation    string      `json:"activation_function"`
		Architectures []string    `json:"architectures"`
		AttnDropout   json.Number `json:"attn_pdrop"`
		Begin         *int32      `json:"bos_token_id"`
		EmbdDropout   json.Number `json:"embd_pdrop"`
		End           *int32      `json:"eos_token_id"`
		Epsilon       float64     `json:"layer_norm_epsilon"`
		ModelType     string      `json:"model_type"`
		Hidden        int         `json:"n_embd"`
		Heads         int         `json:"n_head"`
		Blocks        int         `json:"n_layer"`
		Sequence      int         `json:"n_positions"`
		ResidDropout  json.Number `json:"resid_pdrop"`
		Tied          bool        `json:"tie_word_embeddings"`
		DType         string      `json:"torch_dtype"`
		Vocab         int         `json:"vocab_size"`
	}{"gelu_new", []string{"GPT2LMHeadModel"}, noDropout, special(end), noDropout, special(end), 1e-5, supported[0],
		c.Hidden, c.Heads, c.Blocks, c.Sequence, noDropout, c.Tied, typeNames[F32], c.Vocab}, "", "  ")
	if err != nil {
		panic("checkpoint: configuration does not marshal")
	}
	shape := model.Config{Blocks: c.Blocks, Hidden: c.Hidden, Heads: c.Heads, Sequence: c.Sequence, Vocab: c.Vocab, Tied: c.Tied}
	return Config{Model: shape, End: end, Text: append(text, '\n')}
}

// stored returns the text of the configuration of weights that are stored as d. Where it
// names a type, of any member that it does, it names this one; a text that names none is
// left as it is for float32, which that stands for.
func (c Config) stored(d DType) ([]byte, error) {
	text, named, by := c.Text, false, 0
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

// generation returns generation_config.json, which says how texts begin and end.
func (c Config) generation() []byte {
	text, err := json.MarshalIndent(map[string]*int32{"bos_token_id": special(c.End), "eos_token_id": special(c.End)}, "", "  ")
	if err != nil {
		panic("checkpoint: configuration does not marshal")
	}
	return append(text, '\n')
}
