package dynamic

import "dynmo/src/config"

// Sparse attention is in the model's structure (model.Config.Buckets): what its queries
// see follows from them in every pass, and nothing is decided between steps.
func init() { register("attention", func(config.Config) Kind { return none{} }) }
