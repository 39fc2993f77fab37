package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/files"
)

// Files of Hugging Face's tokenizers beside those of encodings.
const (
	pieceFile    = "tokenizer.model" // sentencepiece's
	settingsFile = "tokenizer_config.json"
	specialFile  = "special_tokens_map.json" // the named tokens of settingsFile, in older directories
)

// tokenizerFiles are the names of tokenizer files in a model's directory.
var tokenizerFiles = []string{
	tokenizerFile, pieceFile, settingsFile, specialFile, addedFile, vocabFile, mergesFile, "chat_template.jinja",
}

// IsTokenizerFile reports whether a file of that name belongs to a tokenizer.
func IsTokenizerFile(name string) bool { return slices.Contains(tokenizerFiles, name) }

// ReadTokenizer returns the tokenizer's files in a directory, by name; none if there are none.
func ReadTokenizer(dir string) (map[string][]byte, error) {
	texts := make(map[string][]byte)
	for _, name := range tokenizerFiles {
		text, err := files.Read(filepath.Join(dir, name), MaxTokenizer)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		texts[name] = text
	}
	return texts, nil
}

// OpenVocabulary reads the tokenizer in a directory (see ParseTokenizer), or one file:
// tokenizer.json, or a sentencepiece model of any name. Errors name the file and the problem.
func OpenVocabulary(path string) (*Vocabulary, error) {
	files, err := TokenizerOf(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ParseTokenizer(path, files)
	}
	if text, ok := files[tokenizerFile]; ok {
		return named(path, text, parseTokenizer)
	}
	return parsePieceVocabulary(path, files[pieceFile])
}

// ParseTokenizer returns the vocabulary in the files of a tokenizer, by name. It reads
// tokenizer.json, else tokenizer.model, else vocab.json with merges.txt. at is the origin of the
// files, for errors. An error names the file; it is fs.ErrNotExist if none of these files is there.
func ParseTokenizer(at string, files map[string][]byte) (*Vocabulary, error) {
	v, err := parseEncoding(at, files)
	if err != nil {
		return nil, err
	}
	if files[tokenizerFile] == nil && files[pieceFile] == nil {
		return v, nil // the settings are used already
	}
	return v, v.applySettings(at, files)
}

func parseEncoding(at string, files map[string][]byte) (*Vocabulary, error) {
	if text, ok := files[tokenizerFile]; ok {
		return named(filepath.Join(at, tokenizerFile), text, parseTokenizer)
	}
	if text, ok := files[pieceFile]; ok {
		return parsePieceVocabulary(filepath.Join(at, pieceFile), text)
	}
	if _, ok := files[vocabFile]; ok {
		return parsePair(at, files)
	}
	return nil, fmt.Errorf("%s: no %s, %s, or %s with %s: %w", at, tokenizerFile, pieceFile, vocabFile, mergesFile, fs.ErrNotExist)
}

// named parses a file and adds its path to errors.
func named(path string, text []byte, parse func([]byte) (*Vocabulary, error)) (*Vocabulary, error) {
	v, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// Beside returns the directory with the tokenizer's files for the token file PREFIX.bin.
func Beside(path string) string { return strings.TrimSuffix(path, ".bin") + ".tokenizer" }

// TokenizerOf returns the files of the tokenizer in a directory, by their names in a model's
// directory. path may also be one file of a tokenizer.
func TokenizerOf(path string) (map[string][]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ReadTokenizer(path)
	}
	text, err := files.Read(path, MaxTokenizer)
	if err != nil {
		return nil, err
	}
	name := pieceFile
	if strings.HasPrefix(strings.TrimLeft(string(text[:min(len(text), looked)]), " \t\r\n"), "{") {
		name = tokenizerFile
	}
	return map[string][]byte{name: text}, nil
}
