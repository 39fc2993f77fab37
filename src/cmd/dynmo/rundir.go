package main

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/config"
	"dynmo/src/launch"
	"dynmo/src/record"
)

// runs is the folder of unnamed run directories.
const runs = "runs"

// runDirectory is the choice of the directory for a run's records.
type runDirectory struct {
	dir    string // "": a new one is made
	none   bool   // no records
	force  bool   // an existing run there may be removed
	resume bool   // the run there is resumed
	found  bool   // dir was found by from, not named
}

// check completes the choice. named is whether the command line names a directory.
func (d *runDirectory) check(named bool) error {
	if d.none && d.dir != "" {
		return fmt.Errorf("--run-dir %s and --no-run-dir: want one of them", d.dir)
	}
	if err := checkUTF8("run-dir", d.dir); err != nil {
		return err
	}
	d.none = d.none || named && d.dir == ""
	switch {
	case d.resume && d.none:
		return errors.New("--resume without a run directory: want --run-dir DIR, or neither")
	case d.resume && d.force:
		return errors.New("--resume and --force: want one of them")
	}
	return nil
}

// from finds the run to resume, if --resume is given and no directory is named. It returns the
// directory with the checkpoints; "": none.
func (d *runDirectory) from(name string) (dir string, err error) {
	if !d.resume {
		return "", nil
	}
	if d.dir == "" {
		d.dir, err = record.Newest(runs, name, checkpoint.Has)
		d.found = d.dir != ""
	}
	if d.dir == "" {
		return runs, err // it has no checkpoints; so all ranks look there, whatever each has found
	}
	return d.dir, err
}

// open makes the run directory, or opens it again. kept receives what a resumed run keeps. It returns
// nil if no records are wanted.
func (d *runDirectory) open(c config.Config, p record.Provenance, about launch.World, kept record.Fold) (run *record.Run, past record.Past, err error) {
	switch {
	case d.none:
	case d.dir == "":
		run, err = record.Create(runs, c.Run.Name, time.Now(), c.TOML(), p)
	case d.resume:
		from := about.Resumed
		return record.Resume(d.dir, c.TOML(), p, record.From{Step: from.Step, Checkpoint: from.From, Damaged: from.Damaged, Clock: about.Clock, Kept: kept})
	case d.force:
		run, err = record.Replace(d.dir, c.TOML(), p)
	default:
		run, err = record.Open(d.dir, c.TOML(), p)
	}
	return run, past, err
}

// resumed returns lines about the checkpoint that a run of `steps` steps resumes from, and about
// changed settings. It returns none for a run that does not resume.
func (d *runDirectory) resumed(dir string, steps int, from checkpoint.Resumed, past record.Past) []string {
	if !d.resume {
		return nil
	}
	var lines []string
	for _, why := range from.Damaged {
		lines = append(lines, "note: not taken: "+why)
	}
	again := ""
	if past.Restarts > 0 {
		again = fmt.Sprintf(" (restart %d)", past.Restarts)
	}
	switch {
	case from.From != "" && d.found:
		lines = append(lines, fmt.Sprintf("resuming the newest run of its name that has a checkpoint, at step %d from %s%s", from.Step, from.From, again))
	case from.From != "":
		lines = append(lines, fmt.Sprintf("resuming at step %d from %s%s", from.Step, from.From, again))
	case past.Restarts > 0:
		lines = append(lines, fmt.Sprintf("nothing to resume: %s has no checkpoint, the run begins again at step 0%s", dir, again))
	case d.dir == "":
		lines = append(lines, fmt.Sprintf("nothing to resume: no run of its name in %s has a checkpoint, the run begins at step 0", runs))
	default:
		lines = append(lines, fmt.Sprintf("nothing to resume: %s held no run, the run begins at step 0", dir))
	}
	if from.Step >= steps {
		lines = append(lines, fmt.Sprintf("note: the run is finished, %d steps are done: to train on, set train.steps to more", from.Step))
	}
	for _, change := range from.Changed {
		lines = append(lines, "note: "+change)
	}
	if from.Otherwise != "" {
		lines = append(lines, "warning: losses go on up to rounding: "+from.Otherwise)
	}
	if from.Anew != "" {
		lines = append(lines, "note: measurements and the balancer begin anew: "+from.Anew)
	}
	for _, n := range []struct {
		count int
		what  string
	}{{past.Cut, "lines of steps that are run again were cut off"}, {past.Damaged, "damaged lines of its records were left out"}, {past.Missing, "steps before it have no records"}} {
		if n.count > 0 {
			lines = append(lines, fmt.Sprintf("note: %d %s", n.count, n.what))
		}
	}
	return lines
}
