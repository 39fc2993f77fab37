package model

import (
	"reflect"
	"slices"
)

// Alike reports whether two layers compute the same on other weights: blocks, or layers
// that these are cut into, of the same parts, exits, or what has the same name. Of groups of
// experts the first, with the router, is alike those of other blocks.
func (d Description) Alike(other Description) bool {
	if d.Kind != other.Kind {
		return false
	}
	if d.Block < 0 && d.Kind != Exit {
		return d.Name == other.Name
	}
	sort := func(a, b part) bool {
		g, _ := a.(*expertGroup)
		h, _ := b.(*expertGroup)
		return reflect.TypeOf(a) == reflect.TypeOf(b) && (g == nil || g.first() == h.first())
	}
	return slices.EqualFunc(d.parts(), other.parts(), sort)
}

// Routes reports whether the layer is a block that takes some of the tokens.
func (d Description) Routes() bool {
	_, ok := d.parts()[0].(*routed)
	return ok
}
