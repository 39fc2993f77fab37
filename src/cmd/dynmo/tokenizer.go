package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dynmo/src/checkpoint"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/record"
	"dynmo/src/replace"
)

// keepTokenizer keeps in a run directory the files of the tokenizer of the run's tokens: those
// beside its token file or, where there are none, those that went with the weights which it
// began with. Of text, which is trained as bytes, there are none.
func keepTokenizer(dir string, c config.Config) error {
	if !data.IsTokens(c.Data.Path) {
		return nil
	}
	files, err := data.ReadTokenizer(data.Beside(c.Data.Path))
	if err == nil && len(files) == 0 && c.Model.Weights != "" {
		files, err = weightsTokenizer(c.Model.Weights)
	}
	if err == nil && len(files) > 0 {
		err = leaveTokenizer(filepath.Join(dir, record.TokenizerDir), files)
	}
	if err != nil {
		return fmt.Errorf("the run's tokenizer: %w", err)
	}
	return nil
}

// weightsTokenizer returns the files of the tokenizer in a weights file.
func weightsTokenizer(path string) (map[string][]byte, error) {
	w, err := checkpoint.OpenWeights(path)
	if err != nil {
		return nil, err
	}
	return w.Tokenizer, w.Close()
}

// leaveTokenizer makes a directory of the files of a tokenizer, in place of those of another
// that lie there. Where there are none it leaves none, nor a directory without other files.
func leaveTokenizer(dir string, files map[string][]byte) error {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range list {
		if data.IsTokenizerFile(entry.Name()) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if len(files) == 0 {
		_ = os.Remove(dir) // fails where other files lie in it
		return nil
	}
	return replace.Directory(dir, func(dir string) error {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
				return err
			}
		}
		return nil
	}, data.IsTokenizerFile)
}
