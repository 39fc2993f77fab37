package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// failing returns dynmo with one more command. It needs an argument and a flag, and ends with err.
func failing(err error) *cobra.Command {
	root := rootCommand()
	child := &cobra.Command{
		Use:  "failing FILE",
		Args: cobra.ExactArgs(1),
		RunE: func(*cobra.Command, []string) error { return err },
	}
	child.Flags().Int("stages", 0, "")
	if err := child.MarkFlagRequired("stages"); err != nil {
		panic(err)
	}
	root.AddCommand(child)
	return root
}

func TestExitStatus(t *testing.T) {
	failure := errors.New("step 3: node1: no memory")
	bad := fmt.Errorf("train: %w", usageError{errors.New("run.toml:1: wrong\nrun.toml:2: wrong too")})
	for _, c := range []struct {
		name   string
		args   string
		err    error
		status int
		stderr string
	}{
		{"done", "failing f --stages 2", nil, 0, ""},
		{"failure", "failing f --stages 2", failure, 1, "dynmo: step 3: node1: no memory\n"},
		{"bad settings", "failing f --stages 2", bad, 2, "dynmo: train: run.toml:1: wrong\ndynmo: run.toml:2: wrong too\n"},
		{"unknown flag", "failing f --stage 2", nil, 2, "dynmo: unknown flag: --stage; the nearest is --stages (see dynmo failing --help)\n"},
		{"far flag", "failing f --replicas 2", nil, 2, "dynmo: unknown flag: --replicas (see dynmo failing --help)\n"},
		{"short flag", "failing f -z", nil, 2, "dynmo: unknown shorthand flag: 'z' in -z (see dynmo failing --help)\n"},
		{"bad flag", "failing f --stages two", nil, 2,
			"dynmo: invalid argument \"two\" for \"--stages\" flag: strconv.ParseInt: parsing \"two\": invalid syntax (see dynmo failing --help)\n"},
		{"missing flag", "failing f", nil, 2, "dynmo: required flag(s) \"stages\" not set (see dynmo failing --help)\n"},
		{"missing argument", "failing --stages 2", nil, 2, "dynmo: accepts 1 arg(s), received 0 (see dynmo failing --help)\n"},
		{"unknown command", "tarin", nil, 2, "dynmo: unknown command \"tarin\" for \"dynmo\" Did you mean this? train (see dynmo --help)\n"},
		{"help", "--help", nil, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := execute(failing(c.err), strings.Fields(c.args), &stdout, &stderr); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if stderr.String() != c.stderr {
				t.Errorf("stderr %q, want %q", &stderr, c.stderr)
			}
		})
	}
}

// TestUsageNamesTheCommand: every way to ask for help, and every refused command line, names the
// intended command.
func TestUsageNamesTheCommand(t *testing.T) {
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.IsAdditionalHelpTopicCommand() {
			return
		}
		path := c.CommandPath()
		line := strings.Fields(path)[1:]
		if text := said(t, append(line, "--help")...); !strings.Contains(text, "\n  "+path) {
			t.Errorf("%s --help lacks its name:\n%s", path, text)
		}
		says(append(line, "--no-such-flag")...).refused(t, exitUsage, "unknown flag: --no-such-flag (see "+path+" --help)")
		for _, child := range c.Commands() {
			check(child)
		}
	}
	check(rootCommand())
	says("plan").refused(t, exitUsage, "accepts 1 arg(s), received 0, want dynmo plan CONFIG --costs FILE (see dynmo plan --help)")
	says("table").refused(t, exitUsage, "want dynmo table RUN_DIR... (see dynmo table --help)")
	says("ckpt", "inspcet").refused(t, exitUsage, "unknown command \"inspcet\" for \"dynmo ckpt\" (see dynmo ckpt --help)")
}

func TestVersion(t *testing.T) {
	b := decoded[versionAnswer](t, "version")
	text := said(t, "version")
	if flag := said(t, "--version"); flag != text || !strings.HasPrefix(text, "dynmo "+b.Version+"\n") {
		t.Errorf("%q, --version %q", text, flag)
	}
	if b.Go == "" || b.Platform == "" || b.Revision == "" || len(b.Kernels) == 0 || len(b.Ranks) == 0 || !strings.Contains(text, "\nkernels   ref (Go)") {
		t.Errorf("%+v in %q", b, text)
	}
}

// TestHelpConfigIsASettingsFile: the help topic prints a settings file that can be used without
// changes.
func TestHelpConfigIsASettingsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.toml")
	write(t, file, said(t, "help", "config"))
	got, err := config.Load(file, nil)
	expect.OK(t, err)
	if !reflect.DeepEqual(got, config.Default()) {
		t.Errorf("loads to %+v", got)
	}
}
