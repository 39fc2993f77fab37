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

// Percent writes a share in per cent.
func Percent(share float64) string { return Significant(100*share) + " %" }
