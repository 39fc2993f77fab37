package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"dynmo/src/files"
)

// rootCommand returns the command dynmo with all its subcommands.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "dynmo",
		Short:         "Train transformer models whose cost changes, with a balanced pipeline",
		Version:       thisBinary().String(),
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}")
	root.AddCommand(trainCommand(), profileCommand(), planCommand(), simulateCommand(), balanceCommand(), costsCommand(), layoutCommand(), benchCommand(), ckptCommand(), sampleCommand(), dataCommand(), tableCommand(), reportCommand(), figuresCommand(), doctorCommand(), versionCommand())
	root.AddCommand(topics()...)
	wanting(root)
	watched(root)
	addHelp(root)
	completed(root)
	return root
}

// wanting adds the usage to errors about arguments, for the commands below c.
func wanting(c *cobra.Command) {
	if args := c.Args; args != nil && !c.HasSubCommands() {
		c.Args = func(c *cobra.Command, list []string) error {
			if err := args(c, list); err != nil {
				return fmt.Errorf("%w, want %s", err, strings.TrimSuffix(c.UseLine(), " [flags]"))
			}
			return nil
		}
	}
	for _, child := range c.Commands() {
		wanting(child)
	}
}

// group returns a command that only lists its subcommands.
func group(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:   name + " WHAT",
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return usageError{fmt.Errorf("%s: what? see %s --help", name, c.CommandPath())}
		},
	}
	c.AddCommand(commands...)
	return c
}

// require marks flags that a command needs.
func require(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := c.MarkFlagRequired(flag); err != nil {
			panic(err)
		}
	}
}

// mostCount bounds the numbers of flags that count steps, rounds or tokens, far below an overflow.
const mostCount = 1_000_000

// checkRange refuses the number of a flag outside [least, most].
func checkRange(flag string, got, least, most int) error {
	if least <= got && got <= most {
		return nil
	}
	return usageError{fmt.Errorf("--%s %d: want %d to %d", flag, got, least, most)}
}

// checkUTF8 refuses a path that no file of settings can name, and no message between ranks.
func checkUTF8(flag, path string) error {
	if utf8.ValidString(path) {
		return nil
	}
	return usageError{fmt.Errorf("--%s %s: not UTF-8, want another name", flag, path)}
}

// checkNames refuses names given with a flag that are not among those known.
func checkNames(flag string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usageError{fmt.Errorf("--%s %s: want some of %s", flag, name, strings.Join(known, ", "))}
		}
	}
	return nil
}

// tellAnswer writes the answer of a command, as text or in JSON.
func tellAnswer(c *cobra.Command, answer interface{ print(io.Writer) error }, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(answer)
	}
	var text strings.Builder
	if err := answer.print(&text); err != nil {
		return err
	}
	_, err := io.WriteString(c.OutOrStdout(), files.VisibleLines(text.String()))
	return err
}

// tellNotes writes notes on the files that were read. It skips "".
func tellNotes(stderr io.Writer, notes ...string) {
	for _, note := range notes {
		if note != "" {
			fmt.Fprintln(stderr, "note:", files.Visible(note))
		}
	}
}

// writeLines writes values for programs: a JSON object in each line.
func writeLines[T any](w io.Writer, values []T) error {
	encoder := json.NewEncoder(w)
	for _, v := range values {
		if err := encoder.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
