package config

import (
	"slices"
	"strings"
)

// Family is the settings of a family of models. Its functions are called if model.family names the
// family. They may be nil.
type Family struct {
	Name, Doc string // value of model.family; description of its models
	Settings  any    // a zero value of the struct with its keys of table model

	Shape func(Config, *Shape)  // changes the shape from that of GPT-2's blocks
	Check func(Config, Rule)    // combinations that are errors
	Holds func(c Config) string // settings under which costs of layers are valid: "model.key=value …"
}

// families are the registered families. The first is the default.
var families []Family

// RegisterFamily adds a family and its keys. It must be called before a Config is made.
func RegisterFamily(f Family) {
	families = append(families, f)
	if f.Settings != nil {
		registerTable(Table{Name: "model", Settings: f.Settings})
	}
}

// familyTag returns a tag; in that of model.family the names of the families are filled in.
func familyTag(tag string) string {
	if len(families) == 0 || !strings.Contains(tag, `oneof:"families"`) {
		return tag
	}
	var names []string
	doc := "architecture"
	for _, f := range families {
		names = append(names, f.Name)
		if f.Doc != "" {
			doc += "; " + f.Name + " " + f.Doc
		}
	}
	return strings.NewReplacer(`oneof:"families"`, `default:"`+names[0]+`" oneof:"`+strings.Join(names, ",")+`"`, `doc:"architecture"`, `doc:"`+doc+`"`).Replace(tag)
}

// family returns the family of the model; the zero value if it is unknown.
func (c Config) family() (f Family) {
	if i := slices.IndexFunc(families, func(f Family) bool { return f.Name == c.Model.Family }); i >= 0 {
		f = families[i]
	}
	return f
}

// FamilyHolds returns the settings of the family under which costs of layers are valid, after a
// blank; "" if there are none.
func (c Config) FamilyHolds() string {
	if holds := c.family().Holds; holds != nil {
		return " " + holds(c)
	}
	return ""
}
