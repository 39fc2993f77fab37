package record

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Provenance is the origin of a result: enough data to repeat it, and nothing else about the
// environment.
type Provenance struct {
	Revision string   `json:"revision"` // version control revision of the source, "+dirty" if the source was changed after it
	Go       string   `json:"go"`
	Platform string   `json:"platform"` // operating system and architecture
	Host     string   `json:"host"`
	CPU      string   `json:"cpu"`
	Cores    int      `json:"cores"`             // number of cores that the process may use
	Kernels  string   `json:"kernels,omitempty"` // backend, instruction-set path and BLAS; bits of the results depend on them
	Corpus   string   `json:"corpus,omitempty"`  // SHA-256 of the training text
	MPI      bool     `json:"mpi"`               // whether ranks are MPI processes
	Date     string   `json:"date"`              // RFC 3339, UTC
	Command  []string `json:"command"`
	Hosts    []string `json:"hosts,omitempty"` // by rank, if ranks are processes
}

// Here returns the provenance of a run that this process begins now.
func Here(mpi bool) Provenance {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Provenance{
		Revision: Revision(),
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Host:     host,
		CPU:      processor(),
		Cores:    runtime.NumCPU(),
		MPI:      mpi,
		Date:     time.Now().UTC().Format(time.RFC3339),
		Command:  os.Args,
	}
}

// Revision returns the version of the source of this binary, as the go command recorded it. It is
// "unknown" if the binary was built outside a checkout.
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return revision(info.Settings)
}

func revision(settings []debug.BuildSetting) string {
	revision, dirty := "unknown", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}

// String returns a line "key: value" for each known fact, in the form that benchstat reads as
// configuration.
func (p Provenance) String() string {
	var b strings.Builder
	for _, fact := range []struct {
		key   string
		value any
	}{
		{"revision", p.Revision}, {"go", p.Go}, {"platform", p.Platform}, {"host", p.Host}, {"cpu", p.CPU},
		{"cores", p.Cores}, {"kernels", p.Kernels}, {"corpus", p.Corpus}, {"mpi", p.MPI}, {"date", p.Date}, {"command", strings.Join(p.Command, " ")},
	} {
		if fact.value != "" {
			fmt.Fprintf(&b, "%s: %v\n", fact.key, fact.value)
		}
	}
	return b.String()
}
