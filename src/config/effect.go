package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Ignored returns a sentence for every setting that differs from its default but has no effect with
// the other settings, or less effect than expected.
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
	for _, k := range c.Dynamic.active() {
		if k.Remarks != nil {
			ignored = append(ignored, k.Remarks(c)...)
		}
	}
	return ignored
}

// silencer returns the setting whose value makes s have no effect, if there is one. The tag of s or
// of its table names that setting, directly or through another setting without effect.
func (s setting) silencer(list []setting) (setting, bool) {
	for _, tag := range []reflect.StructTag{s.tableTag, s.tag} {
		if other, ok := silencerOf(tag, list); ok {
			return other, true
		}
	}
	return setting{}, false
}

// silencerOf returns a setting whose value the `when` of a tag does not allow. It returns the first
// one if the tag names several and allows none of them.
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

// only returns the only commands that use a setting, "a or b"; "" if all commands use it.
func (s setting) only() string {
	if command, ok := s.tag.Lookup("only"); ok {
		return command
	}
	return s.tableTag.Get("only")
}

// CheckSets returns an error that joins the sets without effect on a command that only computes:
// "plan" or "simulate". A set is a "table.key=value" with which c was loaded. kinds are the kinds
// of dynamism that the command assumes, "none" for none. A setting has an effect if it has one with
// any of the kinds. A setting on which costs depend has an effect if it is part of the chain. The
// clock counts as virtual, whatever run.clock says.
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

// checkSilent returns an error if the setting has no effect under any of the kinds of dynamism.
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

// kinds returns the kinds of dynamism under which a setting has an effect: "prune or freeze".
func (s setting) kinds() string {
	for _, tag := range []reflect.StructTag{s.tag, s.tableTag} {
		if choices, ok := strings.CutPrefix(tag.Get("when"), "dynamic.kind="); ok {
			return strings.ReplaceAll(choices, "|", " or ")
		}
	}
	return ""
}

// Assumptions returns the assumptions of a simulated run of a kind of dynamism ("none" for none),
// each in the form of --set.
func (c Config) Assumptions(kind string) []string {
	c.Dynamic.Kind, c.Simulate.Attention = kind, c.AttentionShare()
	for _, k := range c.Dynamic.active() {
		if k.Assume != nil {
			k.Assume(&c)
		}
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
