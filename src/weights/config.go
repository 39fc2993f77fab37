package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/model/family"
)

// Config is the configuration of a model in Hugging Face's form, config.json.
type Config struct {
	Model model.Config // shape only
	End   int32        // the token that ends a text; -1 if the file names none, or several
	Text  []byte       // the whole file, including keys that this package ignores

	form   family.Form
	beside []model.Weight // tensors that the files have besides those of the model
	source *Config        // of the weights that a run began with; nil if they are not known
}

// parseConfig reads config.json. Defaults are those of Hugging Face's configuration of the model
// type. Errors name the key and the byte. Errors are another model type, a shape out of range, and
// arithmetic that the layers of dynmo lack.
func parseConfig(source []byte) (Config, error) {
	o, err := files.Value{JSON: source}.Object()
	if err != nil {
		return Config{}, err
	}
	const kind = "model_type"
	name, err := o[kind].Text()
	form, names, ok := family.Named(name)
	if _, has := o[kind]; !has {
		return Config{}, fmt.Errorf("%s is missing, want one of %s", kind, strings.Join(names, ", "))
	}
	if err != nil || !ok {
		return Config{}, o.Fail(kind, "%.100s is not supported, want one of %s", o[kind], strings.Join(names, ", "))
	}
	if err := form.Check(o); err != nil {
		return Config{}, err
	}
	c := Config{End: -1, Text: source, form: form}
	if c.Model, err = form.Read(o); err != nil {
		return Config{}, err
	}
	if form.Beside != nil {
		if c.beside, err = form.Beside(o, c.Model); err != nil {
			return Config{}, err
		}
	}
	if id, err := o[endKey].Integer(); err == nil && id < int64(c.Model.Vocab) {
		c.End = int32(id)
	}
	return c, nil
}

// assumed adds to an error about tensors the fields of their shapes that the configuration lacks.
func (c Config) assumed(err error) error {
	var absent []string
	o := c.members()
	for names := range strings.FieldsSeq(c.form.Shape) {
		if !slices.ContainsFunc(strings.Split(names, "/"), func(key string) bool { _, ok := o[key]; return ok }) {
			name, _, _ := strings.Cut(names, "/")
			absent = append(absent, name)
		}
	}
	if absent == nil {
		return err
	}
	return fmt.Errorf("%w: %s lacks %s, so the defaults of Transformers were taken: add the model's values", err, ConfigFile, strings.Join(absent, ", "))
}

// newConfig returns the configuration of a model of this shape, in the form that Hugging Face's
// loader reads. It says that there is no dropout. It names the special token of GPT-2's vocabulary;
// those of other vocabularies are not known, so it names none. Without these fields the loader
// would take the defaults of the model type.
func newConfig(c model.Config) Config {
	if c.Vocab == data.GPT2Tokens {
		return endingConfig(c, data.GPT2Tokens-1)
	}
	return endingConfig(c, -1)
}

// endingConfig is newConfig for a model whose texts end with the token `end`; -1 is none.
func endingConfig(c model.Config, end int32) Config { return configOf(family.FormOf(c), c, end, nil) }

// configOf returns the configuration of a model in a form.
func configOf(form family.Form, c model.Config, end int32, source *Config) Config {
	shape := model.Config{
		Family: c.Family, Blocks: c.Blocks, Hidden: c.Hidden, Heads: c.Heads, Sequence: c.Sequence, Vocab: c.Vocab, Tied: c.Tied,
		KeyValueHeads: c.KeyValueHeads, Intermediate: c.Intermediate, NormEps: c.NormEps, Rope: c.Rope,
	}
	if forms := family.FormsOf(c); forms.Extended != nil {
		shape = forms.Extended(c, shape)
	}
	members := form.Write(c, end)
	if form.Keep != nil && source != nil {
		form.Keep(members, source.members(), source.Model)
	}
	text, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		panic("weights: configuration does not marshal")
	}
	return Config{Model: shape, End: end, Text: append(text, '\n'), form: form, source: source}
}

// members returns the members of the configuration.
func (c Config) members() files.Object {
	o, err := files.Value{JSON: c.Text}.Object()
	if err != nil {
		panic("weights: a configuration that was read does not parse")
	}
	return o
}

// stored returns the text of the configuration for weights stored as type d. If members of the text
// name a type, stored replaces it. If none does, float32 is the default, so the text stays for
// float32. For other types stored adds a member. For d = "", which keeps the types of the weights,
// the text stays.
func (c Config) stored(d DType) ([]byte, error) {
	if d == "" {
		return c.Text, nil
	}
	name := strconv.Quote(typeNames[d])
	text, named, err := replaced(c.Text, name, "torch_dtype", "dtype") // Transformers from 4.56 on writes the second
	if err != nil || named || d == F32 {
		return text, err
	}
	rest := bytes.TrimLeft(text, " \t\r\n")[1:] // after the opening brace; there are more members, since model_type is one
	return slices.Concat([]byte("{\n  \"torch_dtype\": "+name+","), rest), nil
}

// replaced returns the JSON text `old` with another value for the members with these keys. found
// reports whether it has such a member.
func replaced(old []byte, value string, keys ...string) (text []byte, found bool, err error) {
	at := 0
	err = files.Value{JSON: old}.Members(func(key string, v files.Value) error {
		if slices.Contains(keys, key) {
			text, found = append(append(text, old[at:v.At]...), value...), true
			at = int(v.At) + len(v.JSON)
		}
		return nil
	})
	return append(text, old[at:]...), found, err
}

// Members of a configuration that name the tokens which begin and end texts.
const (
	beginKey = "bos_token_id"
	endKey   = "eos_token_id"
)

// beginning returns the configuration with another token at the begin of texts, if the
// configuration names such a token. value is the token in JSON.
func (c Config) beginning(value string) Config {
	var err error
	if c.Text, _, err = replaced(c.Text, value, beginKey); err != nil {
		panic("weights: a configuration that was read does not parse")
	}
	return c
}

// generation returns generation_config.json, with the tokens that begin and end texts in the
// configuration.
func (c Config) generation() ([]byte, error) {
	tokens, o := map[string]json.RawMessage{beginKey: []byte("null"), endKey: []byte("null")}, c.members()
	for key := range tokens {
		if v, ok := o[key]; ok {
			tokens[key] = v.JSON
		}
	}
	text, err := json.MarshalIndent(tokens, "", "  ")
	return append(text, '\n'), err
}

// Ends returns the tokens that end texts: those of generation_config.json if it names any, else those of
// config.json. Tokens that the model does not have are left out.
func (w *Weights) Ends() (list []int32) {
	for _, text := range [][]byte{w.Generation, w.Config.Text} {
		for _, id := range ends(text) {
			if id >= 0 && id < int64(w.Config.Model.Vocab) {
				list = append(list, int32(id))
			}
		}
		if list != nil {
			return list
		}
	}
	return nil
}

// endsWith reports whether a configuration or generation_config.json names a token that ends texts.
func endsWith(text []byte, end int32) bool { return slices.Contains(ends(text), int64(end)) }

// ends returns the tokens that end texts in a configuration or generation_config.json. Some models have
// several.
func ends(text []byte) []int64 {
	o, err := files.Value{JSON: text}.Object()
	if err != nil {
		return nil
	}
	list, err := o[endKey].Integers()
	if one, wrong := o[endKey].Integer(); err != nil && wrong == nil {
		list = []int64{one}
	}
	return list
}
