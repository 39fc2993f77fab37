package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dynmo/src/checkpoint"
	"dynmo/src/files"
	"dynmo/src/launch"
	"dynmo/src/train"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailure     = 1
	exitUsage       = 2  // bad command line, settings or input; nothing was done
	exitNotMeasured = 3  // of bench node and bench pairs: no rate was measured, or an output could not be written
	exitNext        = 75 // the run stopped, with a checkpoint, to start again with fewer stages; sysexits.h's EX_TEMPFAIL
	exitUnsaved     = 74 // three checkpoints in a row could not be written; sysexits.h's EX_IOERR
	exitDiverged    = 93 // loss or norm is not finite: a new start from the checkpoint would end the same way
	exitStopped     = 85 // a signal stopped training, and its checkpoint is written
)

// usageError is an error of the user: bad arguments, settings or input.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// quiet reports whether another rank reports the error.
func quiet(err error) bool {
	_, refused := errors.AsType[launch.RefusedError](err)
	return refused
}

// statusError ends a command with a status. The command has already printed the reason.
type statusError int

func (statusError) Error() string { return "" }

// resumableError is the error of a run that has a checkpoint. command resumes the run.
type resumableError struct {
	error
	command string
}

func (e resumableError) Unwrap() error { return e.error }

// nodeError is a verdict of bench node or bench pairs that is not healthy, with its exit status.
type nodeError struct {
	error
	status int
}

// execute runs a command line, prints its error and returns its exit status. Output that
// could not be printed is an error.
func execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(nearFlag)
	started := false
	onStart(root, func() { started = true })
	c, err := root.ExecuteC()
	switch lost := out.lost(); {
	case lost != nil && (err == nil || !started):
		err = lost
	case err != nil && !started && !quiet(err): // the command line was refused
		// cobra spreads its suggestions over lines; one error is one line here.
		text := strings.Join(strings.Fields(err.Error()), " ")
		err = usageError{fmt.Errorf("%s (see %s --help)", text, c.CommandPath())}
	}
	return tell(root.Name(), err, stderr)
}

// nearFlag adds to the error about an unknown flag the flag of c that the user may have meant, if one
// is near.
func nearFlag(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	word := unknown.GetSpecifiedName()
	if near := files.Nearest(word, names); files.Distance(word, near) <= max(1, len(word)/4) {
		return fmt.Errorf("%w; the nearest is --%s", err, near)
	}
	return err
}

// tell writes an error to stderr and returns its exit status. Every line begins with the program's
// name, and has no control characters.
func tell(program string, err error, stderr io.Writer) int {
	if err != nil && !quiet(err) {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "%s: %s\n", program, files.Visible(strings.TrimRight(line, "\n")))
		}
		if run, ok := errors.AsType[resumableError](err); ok {
			fmt.Fprintf(stderr, "to resume: %s\n", run.command)
		}
	}
	return exitStatus(err)
}

// onStart makes c and every command below it call start when they begin to run.
func onStart(c *cobra.Command, start func()) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			start()
			return run(c, args)
		}
	}
	for _, child := range c.Commands() {
		onStart(child, start)
	}
}

// exitStatus returns the exit status of an error.
func exitStatus(err error) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[usageError](err); ok || quiet(err) {
		return exitUsage
	}
	if _, ok := errors.AsType[train.DivergedError](err); ok {
		return exitDiverged
	}
	if _, ok := errors.AsType[checkpoint.UnsavedError](err); ok {
		return exitUnsaved
	}
	if ended, ok := errors.AsType[statusError](err); ok {
		return int(ended)
	}
	if judged, ok := errors.AsType[nodeError](err); ok {
		return judged.status
	}
	return exitFailure
}
