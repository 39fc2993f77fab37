package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/record"
)

// version is the revision that the build was made from; build.sh sets it.
var version string

// revision returns version, or what the go command noted in the binary.
func revision() string {
	if version != "" {
		return version
	}
	return record.Revision()
}

// rootCommand returns the command dynmo with all it can do.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "dynmo",
		Short:         "Train transformer models whose cost changes, with a balanced pipeline",
		Version:       revision() + " (" + runtime.Version() + ")",
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true,
	}
	root.AddCommand(trainCommand(), profileCommand(), planCommand(), simulateCommand(), balanceCommand(), benchCommand(), ckptCommand(), dataCommand(), tableCommand(), reportCommand(), doctorCommand(), configTopic())
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
