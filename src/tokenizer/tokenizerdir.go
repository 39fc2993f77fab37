package tokenizer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"dynmo/src/data"
	"dynmo/src/files"
)

// OpenVocabulary reads the tokenizer in a directory (see ParseTokenizer), or one file:
// tokenizer.json, or a sentencepiece model of any name. Errors name the file and the problem.
func OpenVocabulary(path string) (*Vocabulary, error) {
	files, err := ReadFiles(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ParseTokenizer(path, files)
	}
	if text, ok := files[data.TokenizerFile]; ok {
		return named(path, text, parseTokenizer)
	}
	return parsePieceVocabulary(path, files[data.PieceFile])
}

// ParseTokenizer returns the vocabulary in the files of a tokenizer, by name. It reads
// tokenizer.json, else tokenizer.model, else vocab.json with merges.txt. at is the origin of the
// files, for errors. An error names the file; it is fs.ErrNotExist if none of these files is there.
func ParseTokenizer(at string, files map[string][]byte) (*Vocabulary, error) {
	v, err := parseEncoding(at, files)
	if err != nil {
		return nil, err
	}
	if files[data.TokenizerFile] == nil && files[data.PieceFile] == nil {
		return v, nil // the settings are used already
	}
	return v, v.applySettings(at, files)
}

func parseEncoding(at string, files map[string][]byte) (*Vocabulary, error) {
	if text, ok := files[data.TokenizerFile]; ok {
		return named(filepath.Join(at, data.TokenizerFile), text, parseTokenizer)
	}
	if text, ok := files[data.PieceFile]; ok {
		return parsePieceVocabulary(filepath.Join(at, data.PieceFile), text)
	}
	if _, ok := files[data.VocabFile]; ok {
		return parsePair(at, files)
	}
	return nil, fmt.Errorf("%s: no %s, %s, or %s with %s: %w", at, data.TokenizerFile, data.PieceFile, data.VocabFile, data.MergesFile, fs.ErrNotExist)
}

// named parses a file and adds its path to errors.
func named(path string, text []byte, parse func([]byte) (*Vocabulary, error)) (*Vocabulary, error) {
	v, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// ReadFiles returns the files of the tokenizer in a directory, by their names in a model's
// directory. path may also be one file of a tokenizer.
func ReadFiles(path string) (map[string][]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return data.ReadTokenizer(path)
	}
	text, err := files.Read(path, data.MaxTokenizer)
	if err != nil {
		return nil, err
	}
	name := data.PieceFile
	if strings.HasPrefix(strings.TrimLeft(string(text[:min(len(text), 64)]), " \t\r\n"), "{") {
		name = data.TokenizerFile
	}
	return map[string][]byte{name: text}, nil
}
