package dynamic

import (
	"fmt"
	"math"
)

// Significant writes a number with three digits, or all those before the point.
func Significant(x float64) string {
	switch abs := math.Abs(x); {
	case abs >= 1e6 || abs < 1e-3 && abs > 0:
		return fmt.Sprintf("%.3g", x)
	case abs >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Large writes a number in thousands, millions or more where it is that large.
func Large(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(x) >= unit.size {
			return Significant(x/unit.size) + unit.name
		}
	}
	return Significant(x)
}

// Percent writes a share in per cent.
func Percent(share float64) string { return Significant(100*share) + " %" }
