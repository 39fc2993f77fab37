package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/record"
)

// rootCommand returns the command dynmo with all it can do.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "dynmo",
		Short:         "Train transformer models whose cost changes, with a balanced pipeline",
		Version:       record.Revision() + " (" + runtime.Version() + ")",
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true,
	}
	root.AddCommand(configTopic())
	return root
}

// configTopic returns the help topic on settings: a file with every setting,
// its default, range and meaning, that train reads as it is.
func configTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "every setting with its default, range and meaning (dynmo help config > run.toml)",
		Long:  config.Default().TOML(),
	}
}
