package record

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/dynamic"
)

// ChangeText describes a change of the model in plain words. what names a kind of change, or
// several kinds joined with +. `of` has their figures (see dynamic.Change). A kind that is not
// known is described by its name and all its figures.
func ChangeText(what string, of map[string]any) string {
	figures := make(map[string]float64)
	for name, value := range of {
		if x, ok := value.(float64); ok {
			figures[name] = x
		}
	}
	var list []string
	for kind := range strings.SplitSeq(what, "+") {
		text := dynamic.ChangeText(kind, figures)
		if text == "" {
			rest := maps.Clone(of)
			delete(rest, "what")
			text = strings.TrimSuffix(kind+": "+Figures(rest), ": ")
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// Figures formats the figures of an event, sorted by name.
func Figures(of map[string]any) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		name := strings.ReplaceAll(key, "_", " ")
		if x, ok := of[key].(float64); ok {
			list = append(list, name+" "+dynamic.Large(x))
		} else {
			list = append(list, fmt.Sprintf("%s %v", name, of[key]))
		}
	}
	return strings.Join(list, ", ")
}

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
