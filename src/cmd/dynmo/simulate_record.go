package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// simRecords judges a simulated run, and writes its run directory.
type simRecords struct {
	*record.Run // nil: no directory is written
	settings    config.Config
	tally       verdict.Tally
}

// openRecords makes the run directory of a simulated run. With force it replaces a simulated run
// there. A training run has results that no simulation gives back, so it is never replaced.
func openRecords(dir string, c config.Config, force bool) (*simRecords, error) {
	open := record.Open
	if force {
		if clock, err := record.Clock(dir); err != nil || clock != "" && clock != record.Simulated {
			return nil, cmp.Or(err, fmt.Errorf("--run-dir: %s: the run of dynmo train there is not written over, not with --force either: take another directory", dir))
		}
		open = record.Replace
	} else if _, err := os.Lstat(filepath.Join(dir, record.SettingsFile)); err == nil {
		return nil, fmt.Errorf("--run-dir: %s: a run already lies there: --force writes over it", dir)
	}
	p := record.Here(false)
	p.Revision = revision()
	run, err := open(dir, c.TOML(), p)
	return &simRecords{Run: run, settings: c}, err
}

// simulateInto simulates a run, and records it in dir if that is not "".
func simulateInto(series cost.Series, o study.Options, dynamic, dir string, force bool) (a simAnswer, err error) {
	if dir == "" {
		return simulated(series, o, dynamic, &simRecords{settings: o.Config})
	}
	r, err := openRecords(dir, o.Config, force)
	if err != nil {
		return a, err
	}
	a, err = simulated(series, o, dynamic, r)
	return a, r.end(err)
}

// Say drops lines for people: the answer has them.
func (r *simRecords) Say(string) {}

// Step records some equal steps.
func (r *simRecords) Step(m record.Metrics) error {
	r.tally.Step(m)
	return r.Run.Step(m)
}

// Event records an event.
func (r *simRecords) Event(e record.Event) error {
	r.tally.Event(e)
	return r.Run.Event(e)
}

// Costs records the costs of a phase.
func (r *simRecords) Costs(p record.Phase) error {
	r.tally.Costs(p)
	return r.Run.Costs(p)
}

// Trace records a timeline.
func (r *simRecords) Trace(s trace.Step) error { return r.Run.Trace(s, 0) }

// end writes the summary of the run, and releases its directory.
func (r *simRecords) end(failed error) error {
	status := verdict.Finished
	if failed != nil {
		status = verdict.Failed
	}
	s := r.tally.Summary(status)
	if failed != nil {
		s.Error = failed.Error()
	} else {
		s.Moves, s.Stayed, s.Worth = r.tally.Moves(), r.tally.Stayed(r.settings), r.tally.Worth(r.settings)
	}
	return cmp.Or(failed, s.Write(r.Dir()), r.Close())
}
