package record

import (
	"fmt"
	"strings"
)

// Ranges formats ascending numbers as ranges: "0-3,7".
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
