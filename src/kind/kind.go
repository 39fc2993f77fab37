// Package kind registers all kinds of dynamism, for commands and tests: each is a folder
// beside this file. No kind imports another.
package kind

import (
	"dynmo/src/dynamic"
	"dynmo/src/kind/attention"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/freeze"
	"dynmo/src/kind/layerdrop"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/kind/prune"
)

// init registers the kinds in their fixed order.
func init() {
	for _, r := range []dynamic.Registration{prune.Kind, freeze.Kind, moe.Kind, attention.Kind, exit.Kind, mod.Kind, layerdrop.Kind} {
		dynamic.Register(r)
	}
}
