// Package family is the contract between a family of models and the rest of the program. In comes a
// family's registration. It has the family's settings, its chain of layers, the names of weights,
// and the Hugging Face model types that it reads and writes. Out come the forms in which models are
// read and written.
package family

import (
	"dynmo/src/config"
	"dynmo/src/model"
)

// Registration has all data of a family that other packages use.
type Registration struct {
	Settings config.Family
	Model    model.Family
	Forms    Forms
}

// Register adds a family. The first family is the default. All families are registered before any
// settings or models are made.
func Register(r Registration) {
	config.RegisterFamily(r.Settings)
	model.RegisterFamily(r.Model)
	RegisterForms(r.Forms)
}
