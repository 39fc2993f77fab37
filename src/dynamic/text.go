package dynamic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ChangeText describes a change of the model in plain words. what names a kind of change, or
// several kinds joined with +. `of` has their figures (see Change). A kind that is not
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
		text := ""
		if len(figures) > 0 { // a simulated run has none
			text = kindText(kind, figures)
		}
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
			list = append(list, name+" "+Large(x))
		} else {
			list = append(list, fmt.Sprintf("%s %v", name, of[key]))
		}
	}
	return strings.Join(list, ", ")
}

// kindText says what a change of the model has done; "" if no kind says that.
func kindText(name string, of map[string]float64) string {
	for _, r := range registrations {
		if tell := r.Changes[name]; tell != nil {
			return tell(of)
		}
	}
	return ""
}

// String describes the change in plain words.
func (c Change) String() string {
	of := make(map[string]any)
	for name, x := range c.Detail {
		of[name] = x
	}
	return ChangeText(c.Kind, of)
}
