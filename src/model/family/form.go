package family

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/files"
	"dynmo/src/model"
)

// Forms are the model types of Hugging Face that describe models of a family, or models that a kind
// of dynamism makes from a family.
type Forms struct {
	Describes func(c model.Config) bool                // reports whether one of the forms describes the model
	Extended  func(c, shape model.Config) model.Config // adds the forms' fields to a shape, beyond model.Config's own fields; nil: none
	Settings  func(c model.Config) []Setting           // settings in which weights and their model must agree, besides the common ones
	List      []Form                                   // a model is written in the first form that does not refuse it
}

// Setting is the name and the value of a setting.
type Setting struct {
	Name  string
	Value any
}

// Form is a model type of Hugging Face.
type Form struct {
	Name    string   // model_type
	Prefix  string   // prefix of tensors' names in files of a model with its head
	Token   string   // name of the embedding
	Buffers []string // suffixes of tensors that are not weights
	Unknown string   // why current programs do not load the form; "": they do

	// Shape names the fields that shapes of tensors depend on, each with an alias behind a slash if it has one.
	Shape  string
	Fields []Field // fields of configurations, besides the common ones and before them
	// Read returns the shape that a configuration describes, after Check. Absent members have
	// Hugging Face's defaults.
	Read func(o files.Object) (model.Config, error)
	// Write returns the members of a model's configuration. end is the token that ends a text; -1:
	// none.
	Write func(c model.Config, end int32) map[string]any

	// Keep sets members of a trained model's configuration as the weights have them that it began
	// with. from is the configuration of these weights, c their model. nil: none.
	Keep func(members map[string]any, from files.Object, c model.Config)

	Names   func(c model.Config) []Renaming                                       // maps names of tensors to those of model.Weight; nil: they are equal
	Packed  *Packing                                                              // another layout of tensors in files; nil: none
	Refuses func(c model.Config) error                                            // reports a property of the model that the form cannot describe; nil: none
	Beside  func(o files.Object, c model.Config) (list []model.Weight, err error) // tensors in files besides those of the model; nil: none
}

// Renaming maps names of some tensors to names of model.Weight, or back.
type Renaming struct {
	From *regexp.Regexp
	To   string
}

// Packing is a layout of files in which several weights are one tensor.
type Packing struct {
	Key   string // metadata key of a weights file that marks it as packed
	End   string // suffix of a tensor's name that only packed files have
	Names []Renaming
	// Place returns the index of a weight in its tensor, and the number of weights in the tensor.
	// Both are 0 if the weight has a tensor of its own.
	Place func(c model.Config, weight string) (index, of int64)
}

// all has the forms of families and kinds, in the order of registration.
var all []Forms

// RegisterForms adds the forms of a family or of a kind of dynamism. Forms of a kind have priority
// over those of families.
func RegisterForms(f Forms) { all = append(all, f) }

// FormsOf returns the forms that describe a model. Forms of a kind have priority over those of a
// family.
func FormsOf(c model.Config) Forms {
	for _, f := range slices.Backward(all) {
		if f.Describes(c) {
			return f
		}
	}
	panic("family: a model that no form describes")
}

// FormOf returns the form in which a model is written.
func FormOf(c model.Config) Form {
	list := FormsOf(c).List
	for _, f := range list {
		if f.Refuses == nil || f.Refuses(c) == nil {
			return f
		}
	}
	return list[len(list)-1]
}

// Named returns the form of a model type. If none has the name, ok is false and names has all
// types.
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

// SettingsOf returns the settings in which weights and model must agree, of all families and kinds.
func SettingsOf(c model.Config) (list []Setting) {
	for _, f := range all {
		if f.Settings != nil {
			list = append(list, f.Settings(c)...)
		}
	}
	return list
}

// Limits of a shape. Real models are far below them. Within them no product of dimensions
// overflows.
const (
	MaxBlocks = 1 << 12
	MaxHidden = 1 << 17
	MaxTokens = 1 << 24 // vocabulary, positions
)

// NoDropout is 0 as Python writes a float. Programs that read the file may distinguish 0 from 0.0.
const NoDropout = json.Number("0.0")

// Members returns the members that the configurations of all model types have. Weights are float32,
// and end is the only special token.
func Members(name, architecture string, c model.Config, end int32) map[string]any {
	var special any // null without an end token
	if end >= 0 {
		special = end
	}
	return map[string]any{
		"architectures": []string{architecture}, "model_type": name, "torch_dtype": "float32",
		"bos_token_id": special, "eos_token_id": special, "vocab_size": c.Vocab, "tie_word_embeddings": c.Tied,
	}
}

// Fraction formats a number as Python writes a float. Programs that read the file may distinguish 1
// from 1.0.
func Fraction(x float64) json.Number {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text)
}
