// Package exit is early exit: behind chosen blocks tokens leave (Schuster et al. 2022; paper,
// section 2.2).
package exit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// Kind registers early exit.
var Kind = dynamic.Registration{
	Settings: settings,
	New:      newKind,
	Extension: func(c config.Config) model.Extension {
		e := config.Of[options](c)
		exits := Exits{
			After: e.Depths(c.Model.Blocks), Confidence: e.Confidence, Threshold: e.Threshold, Probe: e.Probe, Weight: e.Weight, Propagate: e.Propagate,
			Weighted: e.Train == "weighted", Agree: e.Agrees(),
		}
		if e.Share > 0 {
			exits.Threshold = 1 // thresholds follow the share: at first no token leaves
		}
		return exits
	},
	Forcing: forcing,
	Workload: dynamic.Making{Every: 100, Routed: true, Of: func(c config.Config) dynamic.Workload {
		s := config.Of[simulated](c)
		return workload{s.From, s.Share, s.Noise}
	}},
	Holds: func(c config.Config) string {
		e := config.Of[options](c)
		return fmt.Sprintf("exit.after=%s exit.confidence=%s exit.train=%s", e.Depths(c.Model.Blocks), e.Confidence, e.Train)
	},
	Exported: func(c config.Config) []string {
		e := config.Of[options](c)
		text := fmt.Sprintf("exits behind blocks %s: others let no token leave; exit.K has the logits norm(x)·W of a state x, W its head or, where the model is tied, the token table", e.Depths(c.Model.Blocks))
		if e.Confidence == classifier {
			text += ", and the confidence softmax(x·classifier)[1]"
		}
		return []string{text}
	},
	Counts:   counts,
	Sentence: sentence,
	Changes: map[string]func(map[string]float64) string{"exit": change, forcedChange: tellForced, "exit.stage2": func(map[string]float64) string {
		return "all but the classifiers of exits is frozen"
	}},
	Few: dynamic.Few{
		Blocks: fewBlocks,
		Finish: func(larger config.Config, layers []cost.Layer) []cost.Layer { return leave(layers, shares(larger)) },
	},
}

// change describes the share of tokens that left, and the thresholds.
func change(of map[string]float64) string {
	wanted, ok := of["share"]
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%s of the tokens left early in the last step (target %s)", dynamic.Percent(of["left"]), dynamic.Percent(wanted))
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
		text += ", thresholds " + strings.Join(thresholds, ", ")
	}
	return text
}

// fewBlocks puts exits behind the second and the third of four blocks. So there are blocks with and
// without an exit behind them, routed or not. No token leaves early.
func fewBlocks(c *config.Config) int {
	e := config.Of[options](*c)
	e.After, e.Share, e.Threshold, e.Stage2 = "2,3", 0, 2, 0
	config.Set(c, e)
	return 4
}

// shares returns the share of the tokens that leave behind each layer in the end.
func shares(c config.Config) []float64 {
	var list []float64
	e := config.Of[options](c)
	for _, d := range model.FromConfig(c).Chain() {
		gone := 0.0
		if d.Kind == model.Exit {
			gone = e.Share / float64(e.Count(c.Model.Blocks))
		}
		list = append(list, gone)
	}
	return list
}
