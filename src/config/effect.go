package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Ignored returns a sentence for every setting that differs from its default
// and has no effect beside the others, or less than one may think.
func (c Config) Ignored() []string {
	standard := Default()
	list, defaults := settings(&c), settings(&standard)
	var ignored []string
	for i, s := range list {
		if reflect.DeepEqual(s.value.Interface(), defaults[i].value.Interface()) {
			continue
		}
		if s.only() == "simulate" {
			ignored = append(ignored, fmt.Sprintf("%s = %s has no effect in training", s.name(), s.text()))
		} else if other, ok := s.silencer(list); ok {
			ignored = append(ignored, fmt.Sprintf("%s = %s has no effect while %s = %s",
				s.name(), s.text(), other.name(), other.text()))
		}
	}
	if c.Dynamic.Has("prune") && c.Prune.Start >= c.Train.Steps {
		ignored = append(ignored, fmt.Sprintf("prune in dynamic.kind has no effect: prune.start = %d is not below train.steps = %d",
			c.Prune.Start, c.Train.Steps))
	}
	if c.Dynamic.Has("freeze") && c.Freeze.When == "step" && c.Freeze.Step >= c.Train.Steps {
		ignored = append(ignored, fmt.Sprintf("freeze in dynamic.kind has no effect: freeze.step = %d is not below train.steps = %d",
			c.Freeze.Step, c.Train.Steps))
	}
	if c.Dynamic.Has("exit") && c.Exit.Share > 0 && c.Exit.Start >= c.Train.Steps {
		ignored = append(ignored, fmt.Sprintf("exit.share = %v has no effect: exit.start = %d is not below train.steps = %d",
			c.Exit.Share, c.Exit.Start, c.Train.Steps))
	}
	ignored = append(ignored, c.costless()...)
	if c.Dynamic.Has("mod") {
		ignored = append(ignored, c.Mod.pointless(c.Model.Blocks)...)
	}
	if c.Dynamic.Has("exit") {
		ignored = append(ignored, c.Exit.says()...)
	}
	for _, part := range []struct{ kind, name string }{{"exit", "exits"}, {"mod", "routers"}} {
		if c.Model.Weights != "" && c.Dynamic.Has(part.kind) {
			ignored = append(ignored, fmt.Sprintf("model.weights = %q has nothing for %s: what these learn begins as without a file", c.Model.Weights, part.name))
		}
	}
	return ignored
}

// costless returns a sentence for every kind of dynamism that runs, but changes the cost
// of no layer with these settings. A balancer then has nothing to react to.
func (c Config) costless() (list []string) {
	const none = " changes no layer's cost: "
	if c.Dynamic.Has("prune") && c.Prune.Start < c.Train.Steps {
		switch {
		case c.Prune.Initial == 0 && c.Prune.Final == 0:
			list = append(list, "prune"+none+"prune.initial and prune.final = 0 remove no weight")
		case c.Prune.Structure == "2:4":
			list = append(list, "prune"+none+"prune.structure = \"2:4\" keeps pruned weights masked dense")
		case c.CSRFrom() > 1:
			list = append(list, fmt.Sprintf("prune%spruned weights stay masked dense on device.kind = %q. A prune.csr_from below 1 stores them as CSR", none, c.Device.Kind))
		}
	}
	if m := c.Mod; c.Dynamic.Has("mod") && m.Capacity == 1 && m.Route == "topk" {
		list = append(list, "mod"+none+"mod.capacity = 1 takes every token into the routed blocks")
	}
	if m := c.Moe; c.Dynamic.Has("moe") && m.Top >= m.Experts {
		list = append(list, fmt.Sprintf("moe%severy token goes to each of the %d experts", none, m.Experts))
	}
	return list
}

// pointless returns sentences on settings of a mixture of depths that work, but route
// nothing.
func (m Mod) pointless(blocks int) (list []string) {
	if blocks < 2 {
		list = append(list, fmt.Sprintf("mod in dynamic.kind has no effect: model.blocks = %d has no second block", blocks))
	}
	if m.Route != "predictor" {
		return list
	}
	switch m.Threshold {
	case 0:
		list = append(list, "mod.threshold = 0 lets every token into the routed blocks: a probability is above 0")
	case 1:
		list = append(list, "mod.threshold = 1 lets no token into the routed blocks: no probability is above 1")
	}
	return list
}

// silencer returns the setting under whose value s has no effect, if there is one:
// one that s or its table names in its tag, or one that silences that.
func (s setting) silencer(list []setting) (setting, bool) {
	for _, tag := range []reflect.StructTag{s.tableTag, s.tag} {
		if other, ok := silencerOf(tag, list); ok {
			return other, true
		}
	}
	return setting{}, false
}

// silencerOf returns the setting whose value a tag does not allow, where it names several
// the first, if it allows none of theirs.
func silencerOf(tag reflect.StructTag, list []setting) (first setting, silent bool) {
	for when := range strings.SplitSeq(tag.Get("when"), " or ") {
		name, choices, chosen := strings.Cut(when, "=")
		decider, ok := find(list, name)
		if !ok {
			continue
		}
		other, value := decider, decider.value.String()
		if chosen && slices.ContainsFunc(decider.words(), func(w string) bool { return slices.Contains(strings.Split(choices, "|"), w) }) || !chosen && value != "" {
			if other, ok = decider.silencer(list); !ok {
				return setting{}, false
			}
		}
		if !silent {
			first, silent = other, true
		}
	}
	return first, silent
}

// only returns the commands, "a or b", that alone look at a setting; "" if all do.
func (s setting) only() string {
	if command, ok := s.tag.Lookup("only"); ok {
		return command
	}
	return s.tableTag.Get("only")
}

// CheckSets returns an error that joins those of sets, each a "table.key=value" that c was
// loaded with, which have no effect on what a command answers that only computes:
// "plan" or "simulate". kinds are the kinds of dynamism that it makes up, "none" for
// none; a setting has an effect if it has one beside any of them. What the costs hold for
// has one if it is part of the chain. Virtual time passes,
// whatever clock training is asked to take.
func (c Config) CheckSets(command string, sets, kinds []string) error {
	c.Run.Clock = "virtual"
	list := settings(&c)
	var problems []error
	for _, set := range sets {
		name, _, _ := strings.Cut(set, "=")
		s, ok := find(list, strings.TrimSpace(name))
		if !ok {
			continue
		}
		switch only := s.only(); {
		case s.tag.Get("shape") != "" && (command == "plan" || c.Dynamic.Structure() != "none"):
			problems = append(problems, c.checkSilent(s.name(), []string{c.Dynamic.Kind}))
		case only != "" && !slices.Contains(strings.Split(only, " or "), command):
			err := fmt.Errorf("--set %s: has no effect on %s, only %s looks at it", s.name(), command, only)
			if flag, ok := s.tag.Lookup("instead"); ok && command == "simulate" {
				err = fmt.Errorf("%w; wanted %s", err, flag)
			}
			problems = append(problems, err)
		default:
			problems = append(problems, c.checkSilent(s.name(), kinds))
		}
	}
	return errors.Join(problems...)
}

// checkSilent refuses a setting that others silence, whatever the kind of dynamism.
func (c Config) checkSilent(name string, kinds []string) (err error) {
	for _, kind := range kinds {
		c.Dynamic.Kind = kind
		list := settings(&c)
		s, _ := find(list, name)
		other, silent := s.silencer(list)
		if !silent {
			return nil
		}
		err = fmt.Errorf("--set %s: has no effect while %s = %s", name, other.name(), other.text())
		if other.name() == "dynamic.kind" {
			err = fmt.Errorf("--set %s: has no effect without --dynamic %s", name, s.kinds())
			if s.tag.Get("shape") != "" {
				err = fmt.Errorf("--set %s: has no effect while dynamic.kind = %q", name, c.Dynamic.Kind)
			}
		}
	}
	return err
}

// kinds returns the kinds of dynamism for which a setting counts: "prune or moe".
func (s setting) kinds() string {
	for _, tag := range []reflect.StructTag{s.tag, s.tableTag} {
		if choices, ok := strings.CutPrefix(tag.Get("when"), "dynamic.kind="); ok {
			return strings.ReplaceAll(choices, "|", " or ")
		}
	}
	return ""
}

// Assumptions returns what a simulated run of a kind of dynamism assumes, "none" for
// none, each as --set takes it.
func (c Config) Assumptions(kind string) []string {
	c.Dynamic.Kind, c.Simulate.Attention = kind, c.AttentionShare()
	if c.Prune.Structure != "2:4" {
		c.Prune.CSRFrom = strconv.FormatFloat(min(1, c.CSRFrom()), 'g', -1, 64)
	}
	list := settings(&c)
	var assumed []string
	for _, s := range list {
		_, silent := s.silencer(list)
		if !silent && (s.only() == "simulate" || s.only() == "" && s.kinds() != "") {
			assumed = append(assumed, fmt.Sprintf("%s=%s", s.name(), s.text()))
		}
	}
	return assumed
}
