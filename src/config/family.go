package config

import (
	"slices"
	"strings"
)

// Family is what settings know of a family of models. Its functions are called where
// model.family names the family. They may be nil.
type Family struct {
	Name, Doc string // in model.family; what models of the family have
	Settings  any    // a zero value of the struct of its keys of table model

	Shape func(Config, *Shape)  // changes the shape of GPT-2's blocks
	Check func(Config, Rule)    // combinations that no run can have
	Holds func(c Config) string // the settings that the costs of layers hold for: "model.key=value …"
}

// families are all that are registered. The first is the default.
var families []Family

// RegisterFamily adds a family and its keys. It is called before there is any Config.
func RegisterFamily(f Family) {
	families = append(families, f)
	if f.Settings != nil {
		registerTable(Table{Name: "model", Settings: f.Settings})
	}
}

// familyTag returns a tag; that of model.family with the families in it.
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

// FamilyHolds returns the settings of the family that the costs of layers hold for, with a
// blank before them; "" if there are none.
func (c Config) FamilyHolds() string {
	if holds := c.family().Holds; holds != nil {
		return " " + holds(c)
	}
	return ""
}
