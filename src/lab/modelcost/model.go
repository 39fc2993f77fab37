// Package modelcost estimates the costs of a model's layers from its description. In comes the config.json
// of a model on Hugging Face. Out come multiply-adds, parameters, bytes and estimated seconds by layer, for
// models that other programs train.
//
// Layers are the embedding, blocks (whole, or halves), layers of multi-token prediction and the head. A
// block is attention with a feed-forward layer that has a gate: down(act(gate(x)) · up(x)).
package modelcost

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/files"
	"dynmo/src/model/family"
)

// Model is the shape of a model.
type Model struct {
	Type    string // model_type
	hidden  int
	vocab   int
	blocks  int
	heads   int
	keys    int // heads with keys and values
	size    int // of a head
	latent  latent
	wide    int    // channels of a dense feed-forward layer
	windows []int  // by block: the newest tokens that a token attends to; 0: all
	experts int    // of a layer; 0: all layers are dense
	chosen  int    // experts that a token goes to
	expert  int    // channels of an expert
	shared  int    // channels of the experts that every token goes to
	sparse  []bool // by block: whether it has experts
	mtps    int    // layers of multi-token prediction
	tied    bool   // the head has the embedding's matrix
	bias    bool   // products for queries, keys and values have a bias
	normed  bool   // queries and keys have norms, one for all heads
	double  bool   // norms stand before and behind attention and the feed-forward layer
}

// latent is the shape of multi-head latent attention. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
type latent struct {
	queries int // channels of the compressed queries; 0: they are not compressed
	keys    int // channels of compressed keys and values; 0: the model has no latent attention
	plain   int // channels of a head without positions
	rotated int // channels of a head with positions
	values  int // channels of a head's values
}

// limit bounds numbers of a configuration: far above those of models, far below an overflow.
const limit = 1 << 22

// mostBlocks bounds the number of blocks.
const mostBlocks = 1 << 12

// Read reads a config.json.
func Read(path string) (Model, error) {
	text, err := files.Read(path, 1<<20)
	if err != nil {
		return Model{}, err
	}
	m, err := parse(text)
	if err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// parse returns the shape that a configuration describes.
func parse(text []byte) (Model, error) {
	o, err := files.Value{JSON: text}.Object()
	if err != nil {
		return Model{}, err
	}
	if err := o.There("model_type"); err != nil {
		return Model{}, err
	}
	name, err := o["model_type"].Text()
	if err != nil {
		return Model{}, fmt.Errorf("model_type: %w", err)
	}
	at := slices.IndexFunc(forms, func(f form) bool { return f.name == name })
	if at < 0 {
		var names []string
		for _, f := range forms {
			names = append(names, f.name)
		}
		return Model{}, fmt.Errorf("model_type %.100q: no rule for its layers, want one of %s", name, strings.Join(names, ", "))
	}
	f := forms[at]
	if err := f.check(o); err != nil {
		return Model{}, err
	}
	r := reader{Object: o}
	m := Model{
		Type: name, hidden: r.number("hidden_size", limit), vocab: r.number("vocab_size", limit), blocks: r.number("num_hidden_layers", mostBlocks),
		heads: r.number("num_attention_heads", limit), tied: f.tied, bias: f.bias, normed: f.normed, double: f.double,
	}
	if r.err != nil {
		return m, r.err
	}
	m.keys = r.numberOr("num_key_value_heads", m.heads)
	m.windows, m.sparse = make([]int, m.blocks), make([]bool, m.blocks)
	if f.heads && r.err == nil {
		m.size = r.number("head_dim", limit)
	} else if m.size = r.numberOr("head_dim", m.hidden/m.heads); m.size*m.heads != m.hidden && o.Absent("head_dim") {
		return m, o.Fail("num_attention_heads", "%d does not divide hidden_size, %d", m.heads, m.hidden)
	}
	if m.heads%m.keys != 0 {
		return m, o.Fail("num_key_value_heads", "%d does not divide num_attention_heads, %d", m.keys, m.heads)
	}
	if err := o.Flag("tie_word_embeddings", &m.tied); err != nil {
		return m, err
	}
	f.read(&r, &m)
	return m, r.err
}

// check returns an error for a field that the form does not know, or that has a value without a rule.
func (f form) check(o files.Object) error {
	known := make(map[string]bool)
	for _, key := range strings.Fields(everyForm + " " + f.keys) {
		known[key] = true
	}
	for _, row := range family.Common {
		for _, key := range strings.Fields(row.Keys) {
			known[key] = known[key] || row.Use != family.Fixed
		}
	}
	fixed := func(key string, want []any) error {
		if known[key] {
			return nil
		}
		known[key] = true
		return o.Only(key, want...)
	}
	for _, key := range sortedKeys(f.fixed) {
		if err := fixed(key, f.fixed[key]); err != nil {
			return err
		}
	}
	for _, row := range family.Common {
		for _, key := range strings.Fields(row.Keys) {
			if err := fixed(key, row.Want); err != nil {
				return err
			}
		}
	}
	for _, key := range sortedKeys(o) {
		if !known[key] {
			return o.Fail(key, "no field of model_type %q that has a rule: it may change the arithmetic; take it out if it does not", f.name)
		}
	}
	return nil
}

// reader reads members of a configuration. err is the first error.
type reader struct {
	files.Object
	err error
}

// number returns a member that must be present.
func (r *reader) number(key string, most int64) int {
	n := 1
	if r.err == nil {
		r.err = r.There(key)
	}
	if r.err == nil {
		r.err = r.Dimensions(files.Dimension{Key: key, To: &n, Limit: most})
	}
	return n
}

// numberOr returns a member, or a default if the member is missing or null.
func (r *reader) numberOr(key string, standard int) int {
	if r.Absent(key) {
		return standard
	}
	return r.number(key, limit)
}

// countOr is numberOr for a member that may be 0.
func (r *reader) countOr(key string, standard int) int {
	if v, ok := r.Object[key]; ok && v.String() == "0" {
		return 0
	}
	return r.numberOr(key, standard)
}
