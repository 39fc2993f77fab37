package model

import (
	"slices"

	"dynmo/src/kernel"
)

// Products returns the dense products of a step of full microbatches, each kind once: of
// blocks' matrices and the head's. Those of fewer tokens, and of routers, are left out.
func Products(c Config, x *Exec) []kernel.Product {
	var list []kernel.Product
	add := func(rows, cols int, bias bool, ops ...kernel.Op) {
		for _, op := range ops {
			p := kernel.Product{Op: op, N: x.N(), C: cols, O: rows, Bias: bias && op != kernel.MatmulBackwardInput && op != kernel.MatmulBackwardGELU}
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	for id, d := range c.Chain() {
		for _, p := range outline(c, d, header{Layer: id}, x.Backend.DType()).params {
			switch {
			case p.role == rolePrunable:
				add(p.Rows, p.Cols, false, kernel.MatmulBackwardWeight)
				add(p.Rows, p.Cols, c.biased(), kernel.MatmulForward, kernel.MatmulForwardAdd, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight)
				if c.biased() { // GPT-2's, whose MLP has GELU
					add(p.Rows, p.Cols, c.biased(), kernel.MatmulForwardGELU, kernel.MatmulBackwardGELU)
				}
			case d.Kind == Head && p.Cols > 1:
				add(p.Rows, p.Cols, false, kernel.MatmulForward, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight)
			}
		}
	}
	return list
}
