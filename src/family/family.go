// Package family is the contract of a family of models, and how a family joins. A family is a
// folder. It has the family's settings, chain of layers, names of weights, and the Hugging Face
// model types that it reads and writes.
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
