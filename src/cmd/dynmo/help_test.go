package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples: every command stands in a group of the help, and has an example that its
// own command line takes.
func TestExamples(t *testing.T) {
	root := rootCommand()
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.IsAdditionalHelpTopicCommand() && c.Name() != "completion" && c.Name() != "help" {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	known := map[string]bool{}
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			check(child)
		}
		if c.Example == "" {
			return
		}
		known[c.CommandPath()] = true
		_, line, _ := strings.Cut(" "+c.Example, " dynmo ")
		line = strings.ReplaceAll(line, "'Once upon a time'", "Once")
		target, rest, err := root.Find(strings.Fields(line))
		if err != nil || target != c {
			t.Fatalf("%q is no line of %s: %v", c.Example, c.CommandPath(), err)
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if err := c.ValidateRequiredFlags(); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if err := c.ValidateArgs(c.Flags().Args()); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	check(root)
	for _, path := range slices.Sorted(maps.Keys(examples)) {
		if !known[path] {
			t.Errorf("an example of %s, which is no command", path)
		}
	}
}
