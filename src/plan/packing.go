package plan

import (
	"fmt"

	"dynmo/src/config"
)

// Packing is the result of one search for a layout with fewer stages.
type Packing struct {
	Kind       string  `json:"kind"`           // repack.kind of the settings
	Stages     int     `json:"stages"`         // the new number of stages; if the model is not packed, the largest number below the present that was tried
	Throughput float64 `json:"throughput"`     // predicted steps per second on Stages, as a share of the dense model's (see Reference); 0: not known
	Exact      bool    `json:"exact"`          // losses keep their bits; false if microbatches get larger (repack.microbatches = "adapt")
	Kept       Kept    `json:"kept,omitempty"` // why the model is not packed (see Kept); "": it is packed
}

// Explain returns a text for people that says why the model was not packed. s is the settings.
func (p Packing) Explain(s config.Repack) string {
	stages := fmt.Sprintf("%d stages", p.Stages)
	if p.Stages == 1 {
		stages = "1 stage"
	}
	text := fmt.Sprintf("%s would reach %.1f %% of the dense model's throughput", stages, 100*p.Throughput)
	switch p.Kept {
	case KeptLoad:
		return fmt.Sprintf("the load is not surely below %v of the dense model's", s.Below)
	case KeptMemory:
		return fmt.Sprintf("ranks of %s would lack memory", stages)
	case KeptNodes:
		return text + ", but no node would come free"
	case KeptUncertain:
		return text + ", which may be noise"
	}
	return fmt.Sprintf("%s, wanted %.1f %%", text, 100*(1-s.Tolerance))
}
