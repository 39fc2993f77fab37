package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/record"
	"dynmo/src/tokenizer"
	"dynmo/src/weights"
)

// runTokenizer is the tokenizer that made a run's tokens.
type runTokenizer struct {
	files  map[string][]byte // by name; empty if there are none
	from   string            // their directory, or the weights file that has them
	unused bool              // the weights that the run begins with have a tokenizer, and its tokens are bytes
}

// findTokenizer returns the tokenizer of a run's tokens. Its files come from the folder of the token
// file, or else from the weights that the run began with. Text that is trained as bytes has no
// tokenizer. In a resumed run the weights file may be gone.
func findTokenizer(c config.Config, resumed bool) (t runTokenizer, err error) {
	t.files, t.from, err = data.TokenizerBeside(c.Data.Path)
	isText := t.from == ""
	if err != nil || len(t.files) > 0 || c.Model.Weights == "" || isText && resumed {
		return t, err
	}
	found, err := weightsTokenizer(c.Model.Weights)
	if isText {
		return runTokenizer{unused: len(found) > 0}, err
	}
	return runTokenizer{files: found, from: c.Model.Weights}, err
}

// corpusLine describes the data that a run trains on, for its log.
func (t runTokenizer) corpusLine(c data.Summary, vocab int) string {
	text := "corpus: " + record.Counted(c.Files, "file") + ", "
	switch {
	case c.Text:
		return text + record.Bytes(int64(c.Tokens)) + " of text, every byte is a token"
	case len(t.files) > 0:
		return text + fmt.Sprintf("%d tokens of the tokenizer in %s", c.Tokens, files.Visible(t.from))
	case tokenizer.IsGPT2(vocab):
		return text + fmt.Sprintf("%d tokens, GPT-2's by the size of the vocabulary", c.Tokens)
	}
	return text + fmt.Sprintf("%d tokens, their tokenizer is not known", c.Tokens)
}

// unusedNote says how to train imported weights on tokens of their tokenizer.
func (t runTokenizer) unusedNote(c config.Config) string {
	return fmt.Sprintf("the imported weights have a tokenizer, and these tokens are bytes: run %s with DIR of the tokenizer, then set data.path = \"OUT.bin\"",
		files.Visible("dynmo data prepare -o OUT.bin --tokenizer DIR "+commandLine([]string{cmp.Or(c.Data.Path, "INPUT")})))
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
