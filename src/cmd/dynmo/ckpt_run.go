package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/checkpoint"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/record"
	"dynmo/src/tokenizer"
	"dynmo/src/weights"
)

// isCheckpoint reports whether a directory is a single checkpoint, not a run directory.
func isCheckpoint(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, checkpoint.ManifestFile))
	return err == nil
}

// verifyCheckpoints verifies a checkpoint, or all checkpoints of a run directory, and prints
// whether each is intact. A checkpoint that its run removes meanwhile is left out, unless it is
// still whole to this process. If none is left it looks again.
func verifyCheckpoints(c *cobra.Command, dir string) error {
	var whole strings.Builder // printed at the end, because a line would end the bar
	var damaged []error
	for range checkpoint.MostLooks {
		list, broken, err := checkpointsIn(dir)
		if err != nil {
			return err
		}
		if damaged = broken; len(list)+len(damaged) == 0 {
			return usageError{noCheckpoint(dir)}
		}
		total := int64(0)
		for _, one := range list {
			total += one.Bytes()
		}
		show := stepsOf(barOf(c), total)
		for _, one := range list {
			one.Show = show
			err := one.Hold()
			if err == nil {
				err = one.Restore()
			}
			one.Close()
			if err == nil {
				fmt.Fprintf(&whole, "%s: whole: %d steps done, %d layers, %d files, %d bytes\n",
					files.Visible(one.Dir), one.Step, one.Layers, len(one.Files), one.Bytes())
			} else if !one.IsRemoved(err) {
				damaged = append(damaged, err)
			}
		}
		if whole.Len()+len(damaged) > 0 {
			break
		}
	}
	if _, err := io.WriteString(c.OutOrStdout(), whole.String()); err != nil {
		return err
	}
	if len(damaged) > 0 {
		return usageError{errors.Join(damaged...)}
	}
	return nil
}

// checkpointsIn opens a checkpoint, or all checkpoints of a run directory. damaged has the reasons why
// others were left out.
func checkpointsIn(dir string) (list []*checkpoint.Checkpoint, damaged []error, err error) {
	if !isCheckpoint(dir) {
		return checkpoint.All(dir)
	}
	one, err := checkpoint.Open(dir)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return []*checkpoint.Checkpoint{one}, nil, nil
}

func noCheckpoint(dir string) error {
	return fmt.Errorf("%s: no checkpoint in it: want a run directory, whose %s has some, or a checkpoint", dir, record.CheckpointDir)
}

// chosen opens a checkpoint: the directory itself, or a run's checkpoint after `step` steps. A
// negative step means the newest intact checkpoint. Newer damaged ones are reported.
func chosen(c *cobra.Command, dir string, step int) (*checkpoint.Checkpoint, error) {
	if isCheckpoint(dir) {
		one, err := checkpoint.Open(dir)
		if err == nil && step >= 0 && one.Step != step {
			err = fmt.Errorf("--step %d: %s is of step %d", step, dir, one.Step)
		}
		return whole(c, one, err)
	}
	all, damaged, err := checkpoint.All(dir)
	switch {
	case err != nil:
		return nil, err
	case len(all)+len(damaged) == 0:
		return nil, noCheckpoint(dir)
	case step >= 0:
		return ofStep(c, dir, step, all)
	}
	newest, damaged, err := checkpoint.Newest(dir, func(one *checkpoint.Checkpoint) { showReading(c, one) })
	for _, skipped := range damaged {
		tellNotes(c.ErrOrStderr(), "skipped: "+skipped.Error())
	}
	return newest, err
}

// whole reads and verifies all of a checkpoint, so that damage is found before anything is written.
func whole(c *cobra.Command, one *checkpoint.Checkpoint, err error) (*checkpoint.Checkpoint, error) {
	if err != nil {
		return nil, err
	}
	showReading(c, one)
	if err := one.Hold(); err != nil {
		return nil, err
	}
	return one, one.Verify()
}

// showReading shows on the bar how much of a checkpoint has been read. It is read twice: to verify
// it, and to take its weights.
func showReading(c *cobra.Command, one *checkpoint.Checkpoint) {
	one.Show = stepsOf(barOf(c), 2*one.Bytes())
}

// ofStep opens a run's checkpoint after `step` steps. all are the run's checkpoints.
func ofStep(c *cobra.Command, dir string, step int, all []*checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	path := filepath.Join(dir, record.CheckpointDir, checkpoint.Name(step))
	if _, err := os.Stat(path); err == nil {
		one, err := checkpoint.Open(path)
		return whole(c, one, err)
	}
	var steps []string
	for _, one := range all {
		steps = append(steps, fmt.Sprint(one.Step))
	}
	return nil, fmt.Errorf("--step %d: no such checkpoint in %s, there are %s", step, dir, strings.Join(steps, ", "))
}

// origin is a model to read, with its tokenizer as far as it is known.
type origin struct {
	weights    *weights.Weights
	tokenizer  map[string][]byte     // files of the tokenizer, if they are known
	vocabulary *tokenizer.Vocabulary // nil if unknown
	what       string                // what the model is, for messages: a run's; else ""
	replayed   bool                  // the loads of the run were forced
	unknown    error                 // why the vocabulary of a run's model is unknown
}

// openOrigin opens the argument FROM: a run's checkpoint, or a weights file.
func openOrigin(c *cobra.Command, from string, step int) (origin, error) {
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		return openRun(c, from, step)
	}
	if step >= 0 {
		return origin{}, fmt.Errorf("--step %d: %s is no run directory", step, from)
	}
	w, err := weights.OpenWeights(from)
	if err != nil {
		return origin{}, err
	}
	w.Watch(barOf(c).Show)
	o := origin{weights: w}
	switch {
	case len(w.Tokenizer) > 0:
		o.knows(from, w.Tokenizer)
	case tokenizer.IsGPT2(w.Config.Model.Vocab):
		o.vocabulary = tokenizer.GPT2Vocabulary()
	}
	return o, nil
}

// knows sets the tokenizer from its files and their place.
func (o *origin) knows(at string, files map[string][]byte) {
	o.tokenizer, o.weights.Tokenizer = files, files
	o.vocabulary, o.unknown = tokenizer.ParseTokenizer(at, files)
}

// openRun opens a checkpoint, with the tokenizer that its run kept.
func openRun(c *cobra.Command, dir string, step int) (origin, error) {
	one, err := chosen(c, dir, step)
	if err != nil {
		return origin{}, err
	}
	settings, _, err := one.Config()
	if err != nil {
		return origin{}, err
	}
	w, err := one.Weights()
	if err != nil {
		return origin{}, err
	}
	o := origin{weights: w, what: fmt.Sprintf("the model of %s after %d steps", one.Dir, one.Step)}
	w.Differs, o.replayed = differs(settings), settings.Dynamic.Replay != ""
	if w.Thresholds, err = one.Thresholds(); err != nil {
		return origin{}, err
	}
	if len(w.Thresholds) > 0 {
		w.Differs += fmt.Sprintf("; thresholds of exits are %v", w.Thresholds)
	}
	if err := o.ofRun(one.Dir, settings); err != nil {
		return origin{}, err
	}
	kinds, begin, end := model.FromConfig(settings).Kinds, int32(-1), w.Config.End
	if o.vocabulary != nil {
		begin, end = o.vocabulary.Begin(), o.vocabulary.End
	}
	w.Config.Model.Kinds = kinds
	if err := w.Describe(begin, end, besideRun(one.Dir, record.SourceDir)); err != nil {
		return origin{}, err
	}
	w.Config.Model.Kinds = kinds // Config alone does not have all kinds
	return o, nil
}

// besideRun returns the path of a file of the run that wrote a checkpoint.
func besideRun(dir, name string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(filepath.Clean(dir))), name)
}

// ofRun sets the tokenizer to the one that a checkpoint's run kept. If the run kept none, the
// tokenizer follows from the run's settings.
func (o *origin) ofRun(dir string, settings config.Config) error {
	at := besideRun(dir, record.TokenizerDir)
	files, err := data.ReadTokenizer(at)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		o.knows(at, files)
		return nil
	}
	o.vocabulary, o.unknown = tokenizer.VocabularyOf(settings.Data.Path, settings.Model.Vocab)
	return nil
}

// files returns the files of the tokenizer, none if it is unknown.
func (o origin) files(c *cobra.Command) (map[string][]byte, error) {
	positions := o.weights.Config.Model.Sequence
	if len(o.tokenizer) > 0 && o.vocabulary != nil {
		all, note, err := o.vocabulary.AddTokenizerJSON(o.tokenizer, positions)
		if note != "" {
			tellNotes(c.ErrOrStderr(), note)
		}
		return all, err
	}
	if len(o.tokenizer) > 0 {
		return o.tokenizer, nil
	}
	if o.unknown != nil {
		tellNotes(c.ErrOrStderr(), fmt.Sprintf("without a tokenizer: %v", o.unknown))
	}
	if o.vocabulary == nil {
		return nil, nil
	}
	return o.vocabulary.Files(positions)
}
