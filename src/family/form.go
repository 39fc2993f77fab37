package family

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/input"
	"dynmo/src/model"
)

// Forms are the model types of Hugging Face's that describe models of a family, or models
// that a kind of dynamism makes of them.
type Forms struct {
	Describes func(c model.Config) bool                // whether one of the forms is a model's
	Extended  func(c, shape model.Config) model.Config // adds to a shape what the forms say beyond model.Config's own fields; nil: nothing
	Settings  func(c model.Config) []Setting           // what weights and the model that they are for agree in, besides the common settings
	List      []Form                                   // the first that does not refuse a model is the one that it is written as
}

// Setting is a value under the name of its setting.
type Setting struct {
	Name  string
	Value any
}

// Form is a model type of Hugging Face's.
type Form struct {
	Name    string   // model_type
	Prefix  string   // of the names of tensors where a model with its head wrote them
	Token   string   // name of the embedding
	Buffers []string // ends of the names of tensors that are no weights
	LLMC    bool     // llm.c's model file holds such a model

	// Read returns the shape that a configuration describes. Members that are absent have
	// Hugging Face's defaults.
	Read func(o input.Object) (model.Config, error)
	// Write returns the members of a model's configuration, whose texts end with a token; -1 is none.
	Write func(c model.Config, end int32) map[string]any

	Names   func(c model.Config) []Renaming                                       // how names of tensors differ from those of model.Weight; nil: not
	Packed  *Packing                                                              // another way in which files hold the tensors; nil: there is none
	Refuses func(c model.Config) error                                            // what a model of these layers may have that the form cannot describe; nil: nothing
	Beside  func(o input.Object, c model.Config) (list []model.Weight, err error) // tensors that files have besides those of the model; nil: none
}

// Renaming is how the names of some tensors differ from those of model.Weight.
type Renaming struct {
	From *regexp.Regexp
	To   string
}

// Packing is how files hold several weights as one tensor.
type Packing struct {
	Key   string // metadata of a weights file that say it is packed
	End   string // of the name of a tensor that only packed files have
	Names []Renaming
	// Place returns which of the weights in its tensor a weight is, and how many these are;
	// 0 of 0 if it has a tensor of its own.
	Place func(c model.Config, weight string) (index, of int64)
}

// all are the forms of families and kinds, in the order of their registration.
var all []Forms

// RegisterForms adds the forms of a family, or of a kind of dynamism, whose forms go before
// those of the families.
func RegisterForms(f Forms) { all = append(all, f) }

// FormsOf returns the forms that describe a model, those of a kind before those of a family.
func FormsOf(c model.Config) Forms {
	for _, f := range slices.Backward(all) {
		if f.Describes(c) {
			return f
		}
	}
	panic("family: a model that no form describes")
}

// FormOf returns the form that a model is written as.
func FormOf(c model.Config) Form {
	list := FormsOf(c).List
	for _, f := range list {
		if f.Refuses == nil || f.Refuses(c) == nil {
			return f
		}
	}
	return list[len(list)-1]
}

// Named returns the form of a model type; false, and the types that there are, if none has it.
func Named(name string) (form Form, names []string, ok bool) {
	for _, f := range all {
		for _, form := range f.List {
			if form.Name == name {
				return form, nil, true
			}
			names = append(names, form.Name)
		}
	}
	return Form{}, names, false
}

// SettingsOf returns what all families and kinds want to agree.
func SettingsOf(c model.Config) (list []Setting) {
	for _, f := range all {
		if f.Settings != nil {
			list = append(list, f.Settings(c)...)
		}
	}
	return list
}

// Limits of a shape. Real models stay far below; within them no product of
// dimensions overflows.
const (
	MaxBlocks = 1 << 12
	MaxHidden = 1 << 17
	MaxTokens = 1 << 24 // vocabulary, positions
)

// NoDropout is a share as Python writes it: what reads the file may tell 0 from 0.0.
const NoDropout = json.Number("0.0")

// Members returns the members that the configurations of all model types have: of weights in
// float32, without tokens that texts begin with other than end.
func Members(name, architecture string, c model.Config, end int32) map[string]any {
	var special any // null where there is no token
	if end >= 0 {
		special = end
	}
	return map[string]any{
		"architectures": []string{architecture}, "model_type": name, "torch_dtype": "float32",
		"bos_token_id": special, "eos_token_id": special, "vocab_size": c.Vocab, "tie_word_embeddings": c.Tied,
	}
}

// Fraction returns a number as Python writes one that is no integer: what reads the file
// may tell 1 from 1.0.
func Fraction(x float64) json.Number {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text)
}
