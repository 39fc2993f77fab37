package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/device/cuda"
	"dynmo/src/kernel/cpu"
	"dynmo/src/record"
)

// version is build.sh's name of the source. The linker sets it.
var version string

// revision returns version, or else the revision that the go command recorded in the binary.
func revision() string {
	if version != "" {
		return version
	}
	return record.Revision()
}

// versionAnswer describes this binary: its source and its parts.
type versionAnswer struct {
	Version  string   `json:"version"`
	Revision string   `json:"revision"` // of version control, in full; "unknown" where the go command did not see it
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Tags     []string `json:"tags"`
	Kernels  []string `json:"kernels"` // values of device.kernel and device.kind
	Ranks    []string `json:"ranks"`   // kinds of ranks
}

// thisBinary describes the running binary.
func thisBinary() versionAnswer {
	b := versionAnswer{
		Version: revision(), Revision: record.Revision(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Tags:    strings.FieldsFunc(buildTags(), func(r rune) bool { return r == ',' || r == ' ' }),
		Kernels: []string{"ref (Go)"}, Ranks: []string{"goroutines"},
	}
	if cpu.Built {
		b.Kernels = append(b.Kernels, "cpu (C over BLAS)")
	}
	if cuda.Built {
		b.Kernels = append(b.Kernels, "cuda")
	}
	for _, tag := range b.Tags {
		if tag == "mpi" {
			b.Ranks = append(b.Ranks, "MPI processes")
		}
	}
	return b
}

// String returns the description for people, a line for each fact.
func (b versionAnswer) String() string {
	list := func(words []string) string {
		if len(words) == 0 {
			return "none"
		}
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("dynmo %s\nrevision  %s\ngo        %s, %s\ntags      %s\nkernels   %s\nranks     %s\n",
		b.Version, b.Revision, b.Go, b.Platform, list(b.Tags), list(b.Kernels), list(b.Ranks))
}

func (b versionAnswer) print(out io.Writer) error {
	_, err := io.WriteString(out, b.String())
	return err
}

// versionCommand returns the command that describes this binary.
func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Tell what this binary was built from, and what is built in",
		Long: `Tell what this binary was built from, and what is built in. What of it works on
this machine dynmo doctor tells.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return tellAnswer(c, thisBinary(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return c
}
