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
	"dynmo/src/nodebench"
	"dynmo/src/nodebench/verdict"
)

// conclude judges rows and writes the outputs that the flags ask for. Its error names the nodes that are
// slow or faulty, or could not be judged, and has the exit status.
func (n *nodeFlags) conclude(c *cobra.Command, rows []verdict.Row, pairs []verdict.Pair, expected []string) error {
	for i := range rows {
		rows[i].Small = rows[i].Small || n.small
	}
	findings := verdict.Judge(rows, n.bounds, expected)
	s := verdict.Summarise(findings, n.bounds)
	s.Bench, s.Measured, s.Version, s.Command = n.name, n.measured.UTC().Truncate(time.Second), revision(), commandLine(os.Args)
	s.Thresholds = append(s.Thresholds, watching(rows))
	var failed []error
	write := func(to target, write func(io.Writer) error) {
		if to.path != "" {
			failed = append(failed, to.write(c, write))
		}
	}
	if n.bounds != nil && s.Verdict != verdict.CannotJudge {
		for _, model := range n.bounds.Strangers(rows) {
			fmt.Fprintf(c.ErrOrStderr(), "dynmo bench node: warning: %s has no bound for %s: a reference of another machine?\n", n.reference, files.Visible(model))
		}
	}
	write(n.prometheus, func(w io.Writer) error { return verdict.Prometheus(w, findings, s) })
	write(n.page, func(w io.Writer) error { return verdict.Page(w, findings, pairs, s) })
	write(n.write, func(w io.Writer) error {
		if names := verdict.BusyNodes(findings); len(names) > 0 {
			return fmt.Errorf("%s: not written, because hosts were busy: %s", n.write.path, strings.Join(names, ", "))
		}
		source := fmt.Sprintf("measured %s, written %s by dynmo %s", s.Measured.Format(time.DateOnly), time.Now().UTC().Format(time.RFC3339), revision())
		reference := verdict.Measure(rows, source)
		if len(reference.Bounds) == 0 {
			return fmt.Errorf("%s: not written, because nothing was measured", n.write.path)
		}
		fmt.Fprintf(c.ErrOrStderr(), "dynmo bench node: writes %s. %s\n", n.write.path, verdict.Allowance)
		return reference.Write(w)
	})
	switch {
	case n.quick:
	case n.bench.json:
		if err := errors.Join(writeLines(c.OutOrStdout(), findings), writeLines(c.OutOrStdout(), pairs), writeLines(c.OutOrStdout(), []verdict.Summary{s})); err != nil {
			failed = append(failed, err)
		}
	default:
		var text strings.Builder
		_ = verdict.Text(&text, findings, s) // a builder never fails
		if _, err := io.WriteString(c.OutOrStdout(), files.VisibleLines(text.String())); err != nil {
			failed = append(failed, err)
		}
	}
	if n.compare != "" && !n.quick {
		fmt.Fprint(c.ErrOrStderr(), files.VisibleLines(verdict.Compare(n.before, findings)))
	}
	if err := errors.Join(failed...); err != nil {
		return errors.Join(n.sentence(findings, s), nodeError{err, exitNotMeasured})
	}
	return n.sentence(findings, s)
}

// watching says whether the users of the hosts were watched, as a sentence for the page.
func watching(rows []verdict.Row) string {
	switch {
	case slices.ContainsFunc(rows, func(r verdict.Row) bool { return r.Small }):
		return "Operands were small (--small): rates mean nothing, and nobody watched the hosts."
	case slices.ContainsFunc(rows, func(r verdict.Row) bool { return r.Clock == verdict.Virtual }):
		return "The clock was virtual (--clock virtual): it counts the CPU time of one thread, and nobody watched the host."
	}
	return nodebench.BusyRule
}

// sentence returns the verdict as an error with an exit status; nil if the status is 0. One node is named
// with all reasons. A quick check is about this node, and leaves out its name.
func (n *nodeFlags) sentence(findings []verdict.Finding, s verdict.Summary) error {
	if s.Status == 0 {
		return nil
	}
	text, names := s.Line, verdict.Bad(findings)
	if s.Status == exitNotMeasured {
		names = nil
	}
	if len(names) == 0 {
		names = verdict.BusyNodes(findings)
	}
	if len(names) == 1 {
		text = verdict.Reason(findings, names[0])
		if !n.quick {
			text = names[0] + ": " + text
		}
	}
	return nodeError{errors.New(text), s.Status}
}

// judgeRecords judges the records that the processes of a bench wrote to a folder.
func (n *nodeFlags) judgeRecords(c *cobra.Command) error {
	expected, err := verdict.Expand(n.nodes)
	if err != nil {
		return usageError{fmt.Errorf("--nodes: %w", err)}
	}
	var rows []verdict.Row
	for i, folder := range n.judge {
		list, at, err := recordsIn(folder)
		if err == nil && len(list) == 0 && len(expected) == 0 {
			err = fmt.Errorf("%s: %w", filepath.Join(folder, "*.jsonl"), fs.ErrNotExist)
		}
		if err != nil {
			return usageError{fmt.Errorf("--judge: %w", err)}
		}
		if at.After(n.measured) {
			n.measured = at
		}
		if i > 0 {
			list = verdict.Again(rows, list)
		}
		rows = list
	}
	if (n.reference != "" || n.write.path != "") && slices.ContainsFunc(rows, func(r verdict.Row) bool { return r.Small }) {
		return usageError{fmt.Errorf("--judge: %w", errSmall)}
	}
	return n.conclude(c, rows, nil, expected)
}

// recordsIn returns the rows of the records in a folder, and the time of the last one.
func recordsIn(folder string) (rows []verdict.Row, at time.Time, err error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, at, err
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	slices.Sort(paths)
	for _, path := range paths {
		list, _, err := files.Lines[verdict.Row](path) // a node that died may leave an incomplete line
		if err != nil {
			return nil, at, err
		}
		if info, err := os.Stat(path); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
		rows = append(rows, verdict.Completed(list)...)
	}
	return rows, at, err
}
