package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestExamples: every command is in a group of the help. Its example is a valid command line of the
// command.
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

// narrow fails the test if lines of a text are wider than allowed for answers.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > widest {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestParagraph: words keep their order, lines keep their width, and --set stays on the line of its
// setting.
func TestParagraph(t *testing.T) {
	set := "--set model.head_shards=" + strings.Repeat("9", 20)
	text := strings.Repeat(set+" ", 9) + "µ"
	var out strings.Builder
	paragraph(&out, "or", "%s", text)
	narrow(t, out.String())
	if got := strings.Join(strings.Fields(out.String()), " "); got != "or "+text {
		t.Errorf("%q", got)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasSuffix(line, "--set\n") || line[beneath-1] != ' ' {
			t.Errorf("%q", line)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"dynmo", "train", "jobs/a.toml", "--set", "run.seed=3"}, "dynmo train jobs/a.toml --set run.seed=3"},
		{[]string{"--set", "run.name=two words", ""}, "--set 'run.name=two words' ''"},
		{[]string{"it's", "$HOME", "a|b"}, `'it'\''s' '$HOME' 'a|b'`},
	} {
		if got := commandLine(c.words); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestHelpTopic: a word that is no topic is refused with the nearest one, at every level.
func TestHelpTopic(t *testing.T) {
	for _, word := range []string{"", " "} {
		if e := says("help", word); e.status != exitUsage || e.stderr != fmt.Sprintf("dynmo: help: no topic %q: dynmo help lists the topics\n", word) {
			t.Errorf("%q: %+v", word, e)
		}
	}
	for args, want := range map[string]string{
		"help datta":      "dynmo: help: no topic \"datta\"; the nearest is dynmo help data\n",
		"help ckpt exprt": "dynmo: help: no topic \"exprt\"; the nearest is dynmo help ckpt export\n",
	} {
		if e := says(strings.Fields(args)...); e.status != exitUsage || e.stderr != want || e.stdout != "" {
			t.Errorf("%s: %+v, want %s", args, e, want)
		}
	}
	for _, args := range []string{"help", "help slurm", "help ckpt export", "help train run.toml"} {
		if said(t, strings.Fields(args)...) == "" {
			t.Errorf("%s: no text", args)
		}
	}
}
