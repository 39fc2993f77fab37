package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/input"
)

// Files of Hugging Face's tokenizers beside those of encodings.
const (
	pieceFile    = "tokenizer.model" // sentencepiece's
	settingsFile = "tokenizer_config.json"
)

// tokenizerFiles are the files that belong to a tokenizer, under the names that they have in a
// model's directory.
var tokenizerFiles = []string{
	tokenizerFile, pieceFile, settingsFile, "special_tokens_map.json", "added_tokens.json", vocabFile, mergesFile, "chat_template.jinja",
}

// IsTokenizerFile reports whether a file of that name belongs to a tokenizer.
func IsTokenizerFile(name string) bool { return slices.Contains(tokenizerFiles, name) }

// ReadTokenizer returns the files of the tokenizer in a directory, by name; none if there are
// none.
func ReadTokenizer(dir string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, name := range tokenizerFiles {
		text, err := input.Read(filepath.Join(dir, name), MaxTokenizer)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// OpenVocabulary reads the tokenizer in a directory (see ParseTokenizer), or a file of one:
// tokenizer.json, or sentencepiece's model, whatever its name. Errors name the file and what
// is wrong.
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

// ParseTokenizer returns the vocabulary of the files of a tokenizer, by name, that are from a
// place: of tokenizer.json or, where that is not there, tokenizer.model, or vocab.json with
// merges.txt. The error names the file; it is fs.ErrNotExist where there is none of them.
func ParseTokenizer(at string, files map[string][]byte) (*Vocabulary, error) {
	v, err := parseEncoding(at, files)
	if err != nil {
		return nil, err
	}
	if text, ok := files[settingsFile]; ok {
		if err := v.set(text, files[tokenizerFile] == nil && files[pieceFile] != nil); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(at, settingsFile), err)
		}
	}
	return v, nil
}

func parseEncoding(at string, files map[string][]byte) (*Vocabulary, error) {
	if text, ok := files[tokenizerFile]; ok {
		return named(filepath.Join(at, tokenizerFile), text, parseTokenizer)
	}
	if text, ok := files[pieceFile]; ok {
		return parsePieceVocabulary(filepath.Join(at, pieceFile), text)
	}
	text, ok := files[vocabFile]
	if !ok {
		return nil, fmt.Errorf("%s: no %s, %s, or %s with %s: %w", at, tokenizerFile, pieceFile, vocabFile, mergesFile, fs.ErrNotExist)
	}
	v, err := named(filepath.Join(at, vocabFile), text, parseVocabulary)
	if err != nil {
		return nil, err
	}
	merges := filepath.Join(at, mergesFile)
	if text, ok = files[mergesFile]; !ok {
		return nil, fmt.Errorf("%s: %w", merges, fs.ErrNotExist)
	}
	if err := v.parseMerges(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", merges, err)
	}
	return v, nil
}

// named parses a file, which errors name.
func named(path string, text []byte, parse func([]byte) (*Vocabulary, error)) (*Vocabulary, error) {
	v, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// settings is what tokenizer_config.json says beside the encoding: the token that ends texts,
// as text or with its properties, and of sentencepiece's model whether texts are given the
// one that begins them.
type settings struct {
	End      json.RawMessage `json:"eos_token"`
	AddBegin *bool           `json:"add_bos_token"`
}

// set applies tokenizer_config.json. The error names a token that there is not.
func (v *Vocabulary) set(text []byte, pieces bool) error {
	var s settings
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	var end string
	if len(s.End) > 0 && json.Unmarshal(s.End, &end) != nil {
		var added addedToken
		if err := json.Unmarshal(s.End, &added); err != nil {
			return fmt.Errorf("eos_token: %w", err)
		}
		end = added.Content
	}
	if end != "" {
		id := slices.Index(v.tokens, end)
		if id < 0 {
			return fmt.Errorf("eos_token: %.100q is no token of the vocabulary", end)
		}
		v.End = int32(id)
	}
	if pieces && s.AddBegin != nil && !*s.AddBegin {
		v.begin = nil
	}
	return nil
}

// Beside returns the directory beside the token file PREFIX.bin that holds the files of the
// tokenizer that made it.
func Beside(path string) string { return strings.TrimSuffix(path, ".bin") + ".tokenizer" }

// TokenizerOf returns the files of the tokenizer in a directory, by their names in a model's
// directory. path may also be one file of a tokenizer.
func TokenizerOf(path string) (map[string][]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ReadTokenizer(path)
	}
	text, err := input.Read(path, MaxTokenizer)
	if err != nil {
		return nil, err
	}
	name := pieceFile
	if strings.HasPrefix(strings.TrimLeft(string(text[:min(len(text), looked)]), " \t\r\n"), "{") {
		name = tokenizerFile
	}
	return map[string][]byte{name: text}, nil
}
