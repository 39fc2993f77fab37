package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"dynmo/src/files"
	"dynmo/src/model/family"
)

// Source returns the files that describe the weights to other programs, by name.
func (w *Weights) Source() map[string][]byte {
	files := map[string][]byte{ConfigFile: w.Config.Text}
	if w.Generation != nil {
		files[generationFile] = w.Generation
	}
	return files
}

// Describe writes the configuration of a trained model, whose texts begin and end with the tokens
// `begin` and `end`; -1 is none. dir has the Source of the weights that the model began with; it may
// be missing. If the same token ends texts there, the model keeps the source's
// generation_config.json, and its first token if `begin` is -1. Both files name the same first
// token.
func (w *Weights) Describe(begin, end int32, dir string) error {
	var source *Config
	first := strconv.Itoa(int(begin))
	path := filepath.Join(dir, ConfigFile)
	text, err := files.Read(path, maxConfig)
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
			if v, ok := c.members()[beginKey]; ok && begin < 0 {
				first = string(v.JSON)
			}
		}
	}
	w.Config = configOf(family.FormOf(w.Config.Model), w.Config.Model, end, source)
	if first != "-1" {
		w.Config = w.Config.beginning(first)
	}
	if v, ok := w.Config.members()[beginKey]; ok && w.Generation != nil {
		w.Generation, _, err = replaced(w.Generation, string(v.JSON), beginKey)
		return err
	}
	return nil
}

// readGeneration returns the text of generation_config.json in a directory, nil if there is none.
func readGeneration(dir string) ([]byte, error) {
	path := filepath.Join(dir, generationFile)
	text, err := files.Read(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !utf8.Valid(text) {
		err = fmt.Errorf("%s: not UTF-8", path)
	}
	return text, err
}
