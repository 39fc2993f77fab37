package model

import (
	"reflect"
	"slices"
)

// Alike reports whether two layers compute the same on other weights: blocks, or their
// halves, of the same parts, exits, or what has the same name.
func (d Description) Alike(other Description) bool {
	if d.Kind != other.Kind {
		return false
	}
	if d.Block < 0 && d.Kind != Exit {
		return d.Name == other.Name
	}
	sort := func(a, b part) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }
	return slices.EqualFunc(d.parts(), other.parts(), sort)
}

// Routes reports whether the layer is a block that takes some of the tokens.
func (d Description) Routes() bool {
	_, ok := d.parts()[0].(*routed)
	return ok
}
