package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/record"
	"dynmo/src/weights"
)

// keepTokenizer copies the tokenizer's files into a run directory. They come from the folder of the
// token file, or else from the weights that the run began with. Text that is trained as bytes has
// no tokenizer.
func keepTokenizer(dir string, c config.Config) error {
	texts, tokens, err := data.TokenizerBeside(c.Data.Path)
	if err == nil && tokens && len(texts) == 0 && c.Model.Weights != "" {
		texts, err = weightsTokenizer(c.Model.Weights)
	}
	if err == nil && len(texts) > 0 {
		err = leaveFiles(filepath.Join(dir, record.TokenizerDir), texts, data.IsTokenizerFile)
	}
	if err != nil {
		return fmt.Errorf("the run's tokenizer: %w", err)
	}
	return nil
}

// weightsTokenizer returns the tokenizer's files in a weights file.
func weightsTokenizer(path string) (map[string][]byte, error) {
	w, err := weights.OpenWeights(path)
	if err != nil {
		return nil, err
	}
	return w.Tokenizer, w.Close()
}

// keepSource copies the configuration of the weights that a run begins with into the run's
// directory, for exports of the trained model.
func keepSource(dir string, c config.Config) error {
	var texts map[string][]byte
	if c.Model.Weights != "" {
		w, err := weights.OpenWeights(c.Model.Weights)
		if err != nil {
			return err
		}
		texts = w.Source()
		if err := w.Close(); err != nil {
			return err
		}
	}
	return leaveFiles(filepath.Join(dir, record.SourceDir), texts, func(string) bool { return true })
}

// leaveFiles writes files into a directory, and removes other files that are stale. Without files it
// only removes, and also removes a directory that is then empty.
func leaveFiles(dir string, texts map[string][]byte, stale func(name string) bool) error {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range list {
		if stale(entry.Name()) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if len(texts) == 0 {
		_ = os.Remove(dir) // fails if the directory has other files
		return nil
	}
	return files.Directory(dir, func(dir string) error {
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
				return err
			}
		}
		return nil
	}, stale)
}
