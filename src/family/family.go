// Package family is the contract of a family of models, and how a family joins. A family is
// a folder: its settings, its chain of layers, the names of its weights, and the model types
// of Hugging Face's that it is read from and written as.
package family

import (
	"dynmo/src/config"
	"dynmo/src/model"
)

// Registration is all that the rest of the program knows of a family.
type Registration struct {
	Settings config.Family
	Model    model.Family
	Forms    Forms
}

// Register adds a family. The first is the default. It is called before there are any
// settings or models.
func Register(r Registration) {
	config.RegisterFamily(r.Settings)
	model.RegisterFamily(r.Model)
	RegisterForms(r.Forms)
}
