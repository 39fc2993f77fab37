package dynamic

import "dynmo/src/config"

// A mixture of depths is decided within the layers, by what their tokens are: it is part
// of the chain (model.Depths) and changes nothing between steps.
func init() { register("mod", func(config.Config) Kind { return none{} }) }
