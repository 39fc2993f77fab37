// Package kind registers all families of models and all kinds of dynamism, for commands and
// tests: a family is a folder in src/model, a kind a folder beside this file. No kind imports
// another.
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
	"dynmo/src/model/family"
	"dynmo/src/model/gpt2"
	"dynmo/src/model/llama"
)

// init registers families and kinds in their fixed order.
func init() {
	for _, r := range []family.Registration{gpt2.Family, llama.Family} {
		family.Register(r)
	}
	for _, r := range []dynamic.Registration{prune.Kind, freeze.Kind, moe.Kind, attention.Kind, exit.Kind, mod.Kind, layerdrop.Kind} {
		dynamic.Register(r)
	}
}
