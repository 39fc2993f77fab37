package record

import (
	"fmt"
	"math"
	"strings"

	"dynmo/src/dynamic"
)

// Large writes a number in thousands, millions or more where it is that large.
func Large(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(x) >= unit.size {
			return dynamic.Significant(x/unit.size) + unit.name
		}
	}
	return dynamic.Significant(x)
}

// Ranges writes ascending numbers as ranges: "0-3,7".
func Ranges(list []int) string {
	var text strings.Builder
	for i := 0; i < len(list); {
		last := i
		for last+1 < len(list) && list[last+1] == list[last]+1 {
			last++
		}
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprint(&text, list[i])
		if last > i {
			fmt.Fprintf(&text, "-%d", list[last])
		}
		i = last + 1
	}
	return text.String()
}
