package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"dynmo/src/files"
)

// stdout is the path that means standard output.
const stdout = "-"

// target is the file or directory that a flag names as the output of a command.
type target struct {
	flag, path string // path is "" without output
	needed     bool
	force      bool
}

// flags adds the flag of the target to a command, with its letter or "", and --force.
func (t *target) flags(c *cobra.Command, flag, letter, usage string) {
	t.named(c, flag, letter, usage)
	c.Flags().BoolVar(&t.force, "force", false, "write over what --"+flag+" names")
}

// named adds the flag of the target to a command. The caller sets force.
func (t *target) named(c *cobra.Command, flag, letter, usage string) {
	t.flag = flag
	c.Flags().StringVarP(&t.path, flag, letter, "", usage)
}

// required adds a flag -o that the command needs.
func (t *target) required(c *cobra.Command, usage string) {
	t.flags(c, "output", "o", usage)
	t.needed = true
	require(c, "output")
}

// standard reports whether the target is standard output, where nothing can be overwritten.
func (t *target) standard() bool { return t.path == stdout || t.path == "/dev/stdout" }

// check reports, before any work, whether the target and the files beside it can be written.
// Existing files need --force.
func (t *target) check(beside ...string) error {
	if err := checkUTF8(t.flag, t.path); err != nil {
		return err
	}
	switch {
	case t.standard() || t.path == "" && !t.needed:
		return nil
	case t.path == "":
		return usageError{fmt.Errorf("--%s: want the name of a file", t.flag)}
	}
	for _, path := range append([]string{t.path}, beside...) {
		switch info, err := os.Stat(path); {
		case err == nil && info.IsDir():
			return usageError{fmt.Errorf("--%s: %s: a directory, want a file", t.flag, path)}
		case err == nil && info.Mode().IsRegular():
			if err := t.exists(path); err != nil {
				return err
			}
		}
	}
	_, err := os.Stat(filepath.Dir(t.path))
	if err != nil {
		err = &fs.PathError{Op: "open", Path: t.path, Err: errors.Unwrap(err)}
	}
	return t.fail(err)
}

// checkDirectory is check for a directory, which may exist if it is empty.
func (t *target) checkDirectory() error {
	if t.path == stdout || t.path == "" {
		return usageError{fmt.Errorf("--%s %q: want the name of a directory", t.flag, t.path)}
	}
	if err := checkUTF8(t.flag, t.path); err != nil {
		return err
	}
	info, err := os.Stat(t.path)
	if err == nil && !info.IsDir() {
		return usageError{fmt.Errorf("--%s: %s: a file, want a directory", t.flag, t.path)}
	}
	if files, _ := os.ReadDir(t.path); len(files) > 0 {
		return t.exists(t.path)
	}
	return nil
}

// exists returns an error for a path that exists, unless --force is given.
func (t *target) exists(path string) error {
	if t.force {
		return nil
	}
	return usageError{fmt.Errorf("%s exists: --force writes over it", path)}
}

// write makes the file, completely or not at all, or writes to standard output.
func (t *target) write(c *cobra.Command, write func(io.Writer) error) error {
	if t.standard() {
		return write(c.OutOrStdout())
	}
	return t.fail(files.Write(t.path, write))
}

// fail adds the flag to an error.
func (t *target) fail(err error) error {
	if err != nil {
		err = fmt.Errorf("--%s: %w", t.flag, err)
	}
	return err
}
