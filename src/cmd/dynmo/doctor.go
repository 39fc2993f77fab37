package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// finding is the report on one piece of equipment of a machine.
type finding struct {
	Name  string   `json:"name"`            // a value of --require
	OK    bool     `json:"ok"`              // present and working
	Found string   `json:"found"`           // its version or place, or the error
	Traps []string `json:"traps,omitempty"` // known surprises of this version, with their sources
	Gives string   `json:"gives,omitempty"`
	Get   string   `json:"get,omitempty"` // how to install it
}

// exam checks one piece of equipment. Gives and Get are part of the finding only if it is missing.
type exam struct {
	name  string
	gives string
	get   string
	look  func() (found string, err error)
}

// doctorCommand returns the command that lists the equipment of this machine.
func doctorCommand() *cobra.Command {
	var asJSON bool
	var require []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "List the equipment of this machine: MPI, NCCL, CUDA, NVML, Slurm, cores",
		Long: `List the equipment of this machine, with versions. A note is a known trap of that version, with
its source. For a missing part doctor says what the part is good for and how to get it. The status
is 0 all the same, unless a part that --require names is missing: ` + strings.Join(examNames(), ", ") + `.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkNames("require", require, examNames()); err != nil {
				return err
			}
			findings := examine(exams())
			write := writeFindings
			if asJSON {
				write = writeLines[finding]
			}
			if err := write(c.OutOrStdout(), findings); err != nil {
				return err
			}
			return missing(findings, require)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	c.Flags().StringSliceVar(&require, "require", nil, "fail if any of these is missing")
	return c
}

func examNames() []string {
	var names []string
	for _, e := range exams() {
		names = append(names, e.name)
	}
	return names
}

// examine makes exams in order.
func examine(exams []exam) []finding {
	var findings []finding
	for _, e := range exams {
		found, err := e.look()
		f := finding{Name: e.name, OK: err == nil, Found: found, Traps: trapsOf(e.name, found)}
		if err != nil {
			f.Found, f.Gives, f.Get = strings.Join(strings.Fields(err.Error()), " "), e.gives, e.get
		}
		findings = append(findings, f)
	}
	return findings
}

// missing returns an error that names the required equipment that is not here.
func missing(findings []finding, require []string) error {
	var names []string
	for _, f := range findings {
		if !f.OK && slices.Contains(require, f.Name) {
			names = append(names, f.Name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("this machine lacks %s", strings.Join(names, ", "))
}

func writeFindings(out io.Writer, findings []finding) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		mark := "yes"
		if !f.OK {
			mark = "no"
		}
		for i, line := range strings.Split(f.Found, "\n") {
			if i == 0 {
				fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, mark, line)
			} else {
				fmt.Fprintf(t, "\t\t%s\n", line)
			}
		}
		for _, trap := range f.Traps {
			fmt.Fprintf(t, "\t\tnote: %s\n", trap)
		}
		if !f.OK {
			fmt.Fprintf(t, "\t\tgives %s; get it: %s\n", f.Gives, f.Get)
		}
	}
	return t.Flush()
}
