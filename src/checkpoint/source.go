package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"unicode/utf8"

	"dynmo/src/family"
	"dynmo/src/input"
)

// Source returns the files that describe the weights to other programs, by name.
func (w *Weights) Source() map[string][]byte {
	files := map[string][]byte{ConfigFile: w.Config.Text}
	if w.Generation != nil {
		files[generationFile] = w.Generation
	}
	return files
}

// Describe writes the configuration of a trained model, whose texts end with the token `end`; -1 is
// none. dir has the Source of the weights that the model began with; it may be missing. The model
// keeps the source's generation_config.json if the same token ends its texts.
func (w *Weights) Describe(end int32, dir string) error {
	var source *Config
	path := filepath.Join(dir, ConfigFile)
	text, err := input.Read(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		c, err := parseConfig(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		source = &c
		generation, err := readGeneration(dir)
		if err != nil {
			return err
		}
		if endsWith(text, end) || endsWith(generation, end) {
			w.Generation = generation
		}
	}
	w.Config = configOf(family.FormOf(w.Config.Model), w.Config.Model, end, source)
	return nil
}

// readGeneration returns the text of generation_config.json in a directory, nil if there is none.
func readGeneration(dir string) ([]byte, error) {
	path := filepath.Join(dir, generationFile)
	text, err := input.Read(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !utf8.Valid(text) {
		err = fmt.Errorf("%s: not UTF-8", path)
	}
	return text, err
}
