package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// simRecords writes the record of a simulated run into its run directory.
type simRecords struct{ *record.Run }

// Say drops lines for people: the answer has them.
func (simRecords) Say(string) {}

// openRecords makes the run directory of a simulated run. With force it replaces a simulated run
// there. A training run has results that no simulation gives back, so it is never replaced.
func openRecords(dir string, c config.Config, force bool) (*record.Run, error) {
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
	return open(dir, c.TOML(), p)
}

// simulated simulates a series with the settings' balancer, and with static cuts. kind is the dynamism
// that generated the series; "": none. The record of the run is written into dir if that is not "".
func simulated(series cost.Series, o study.Options, kind, dir string, force bool) (simAnswer, error) {
	var run *record.Run
	if dir != "" {
		var err error
		if run, err = openRecords(dir, o.Config, force); err != nil {
			return simAnswer{}, err
		}
		o.Observe = simRecords{run}
	}
	a, err := study.Ask(series, o)
	a.Dynamic, a.Assumes = kind, o.Config.Assumptions(kind)
	a.Unchanged = kind != "" && !secondsChange(series)
	if run == nil {
		return simAnswer(a), err
	}
	status := verdict.Finished
	if err != nil {
		status = verdict.Failed
	}
	s := a.Run.Tally.Summary(status, o.Config, err)
	if err == nil {
		s.Worth = a.Run.Tally.Worth(o.Config)
	}
	return simAnswer(a), cmp.Or(err, s.Write(dir), run.Close())
}

// secondsChange reports whether some layer takes other seconds in a later step than in the first.
func secondsChange(series cost.Series) bool {
	return slices.ContainsFunc(series, func(p cost.Phase) bool {
		return p.Scale != nil || !slices.EqualFunc(p.Layers, series[0].Layers, func(a, b cost.Layer) bool { return a.Stage() == b.Stage() })
	})
}
