package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/dynamic"
)

// ChangeText says in plain words how the model changed: what names a kind of change, or
// several joined with +, and of are their figures (see dynamic.Change). A kind that is
// not known is told by its name and all figures.
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
		if tell := changeTexts[kind]; tell != nil {
			text = tell(figures)
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

// changeTexts say what a kind of change has done, "" where its figures do not tell.
var changeTexts = map[string]func(map[string]float64) string{
	"prune": func(of map[string]float64) string {
		text := share(of[sparsityKey]) + " of the prunable weights are gone"
		if of["prunable"] > 0 {
			text += fmt.Sprintf(", %s of %s are left", Large(of["kept"]), Large(of["prunable"]))
		}
		return text
	},
	"freeze": func(of map[string]float64) string {
		all := ""
		if of["of_all"] > 0 {
			all = fmt.Sprintf(" of %.0f", of["of_all"])
		}
		return fmt.Sprintf("frozen layers: the first %.0f%s", of["layers"], all)
	},
	"thaw": func(of map[string]float64) string {
		return fmt.Sprintf("all layers train again: thawed are the first %.0f", of["layers"])
	},
	"exit": func(of map[string]float64) string {
		wanted, ok := of["share"]
		if !ok {
			return ""
		}
		text := fmt.Sprintf("%s of the tokens left early in the last step, %s are to leave", share(of["left"]), share(wanted))
		var names, thresholds []string
		for name := range of {
			if strings.HasSuffix(name, ".threshold") {
				names = append(names, name)
			}
		}
		slices.SortFunc(names, func(a, b string) int { // exit.10 is behind exit.2
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		for _, name := range names {
			thresholds = append(thresholds, dynamic.Significant(of[name]))
		}
		if thresholds != nil {
			text += ", thresholds are " + strings.Join(thresholds, ", ")
		}
		return text
	},
	"mod": func(of map[string]float64) string {
		return fmt.Sprintf("routed blocks take %s of the tokens; of %s it was foretold rightly whether they are among the first",
			share(of["taken"]), share(of["right"]))
	},
}

// Figures writes the figures of an event, by name.
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

// share writes a share in per cent.
func share(x float64) string { return dynamic.Significant(100*x) + " %" }
