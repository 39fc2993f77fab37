package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/files"
	"dynmo/src/nodebench/verdict"
)

// conclude judges rows and writes the outputs that the flags ask for. Its error names the slow and
// faulty nodes.
func (n *nodeFlags) conclude(c *cobra.Command, rows []verdict.Row, pairs []verdict.Pair, expected []string) error {
	findings := verdict.Judge(rows, n.bounds, expected)
	var failed []error
	write := func(to target, write func(io.Writer) error) {
		if to.path != "" {
			failed = append(failed, to.write(c, write))
		}
	}
	if n.bounds != nil {
		for _, model := range n.bounds.Strangers(rows) {
			fmt.Fprintf(c.ErrOrStderr(), "dynmo bench node: warning: %s has no bound for %s: a reference of another machine?\n", n.reference, files.Visible(model))
		}
	}
	write(target{flag: "prometheus", path: n.prometheus}, func(w io.Writer) error { return verdict.Prometheus(w, findings) })
	write(n.page, func(w io.Writer) error { return verdict.Page(w, findings, pairs) })
	write(n.write, func(w io.Writer) error {
		source := fmt.Sprintf("measured %s by dynmo %s", time.Now().UTC().Format(time.DateOnly), revision())
		return verdict.Measure(rows, source).Write(w)
	})
	switch {
	case n.quick:
	case n.bench.json:
		if err := errors.Join(writeLines(c.OutOrStdout(), findings), writeLines(c.OutOrStdout(), pairs)); err != nil {
			failed = append(failed, err)
		}
	default:
		var text strings.Builder
		_ = verdict.Text(&text, findings) // a builder never fails
		if _, err := io.WriteString(c.OutOrStdout(), files.VisibleLines(text.String())); err != nil {
			failed = append(failed, err)
		}
	}
	if n.compare != "" && !n.quick {
		fmt.Fprint(c.ErrOrStderr(), files.VisibleLines(verdict.Compare(n.before, findings)))
	}
	if bad := verdict.Bad(findings); len(bad) > 0 {
		text := verdict.Line(findings)
		if len(bad) == 1 {
			text = bad[0] + ": " + verdict.Reason(findings, bad[0])
		}
		failed = append(failed, errors.New(text))
	}
	return errors.Join(failed...)
}

// judgeRecords judges the records that the processes of a bench wrote to a folder.
func (n *nodeFlags) judgeRecords(c *cobra.Command) error {
	expected, err := verdict.Expand(n.nodes)
	if err != nil {
		return usageError{fmt.Errorf("--nodes: %w", err)}
	}
	var rows []verdict.Row
	for i, folder := range n.judge {
		list, err := recordsIn(folder)
		if err == nil && len(list) == 0 && len(expected) == 0 {
			err = fmt.Errorf("%s: %w", filepath.Join(folder, "*.jsonl"), fs.ErrNotExist)
		}
		if err != nil {
			return usageError{fmt.Errorf("--judge: %w", err)}
		}
		if i > 0 {
			list = verdict.Again(rows, list)
		}
		rows = list
	}
	return n.conclude(c, rows, nil, expected)
}

// recordsIn returns the rows of the records in a folder.
func recordsIn(folder string) ([]verdict.Row, error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	slices.Sort(paths)
	var rows []verdict.Row
	for _, path := range paths {
		list, _, err := files.Lines[verdict.Row](path) // a node that died may leave an incomplete line
		if err != nil {
			return nil, err
		}
		rows = append(rows, verdict.Completed(list)...)
	}
	return rows, err
}
