package main

import (
	"embed"

	"github.com/spf13/cobra"

	"dynmo/src/config"
)

// pages are the help topics, in Markdown.
//
//go:embed help/*.md
var pages embed.FS

// topics returns the help topics: commands that do nothing but tell. That on settings is a
// file with every setting, which train reads as it is.
func topics() []*cobra.Command {
	settings := &cobra.Command{Use: "config", Short: "every setting with its default, range and meaning (dynmo help config > run.toml)"}
	settings.SetHelpFunc(func(c *cobra.Command, args []string) { // the text takes longer to write than a command to start
		c.Long = config.Default().TOML()
		c.Parent().HelpFunc()(c, args)
	})
	list := []*cobra.Command{settings}
	for _, t := range []struct{ name, short string }{
		{"kinds", "what changes a model while it trains, how layers are balanced and packed"},
		{"files", "what a run leaves, and what the words mean"},
		{"clocks", "which clock made a time; profile, plan and simulate"},
		{"faults", "what becomes of a run when something fails, and how it goes on"},
		{"slurm", "batch jobs, and nodes that go back"},
		{"gpu", "building and running on GPUs"},
	} {
		list = append(list, &cobra.Command{Use: t.name, Short: t.short, Long: page(t.name)})
	}
	return list
}

// page returns a help topic's text.
func page(name string) string {
	text, err := pages.ReadFile("help/" + name + ".md")
	if err != nil {
		panic(err)
	}
	return string(text)
}
