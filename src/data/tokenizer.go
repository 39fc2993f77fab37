package data

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/files"
)

// Files of Hugging Face's tokenizers.
const (
	TokenizerFile = "tokenizer.json"
	PieceFile     = "tokenizer.model" // sentencepiece's
	VocabFile     = "vocab.json"
	MergesFile    = "merges.txt"
	SettingsFile  = "tokenizer_config.json"
	SpecialFile   = "special_tokens_map.json" // the named tokens of SettingsFile, in older directories
	AddedFile     = "added_tokens.json"       // the ids of added tokens, in older directories
)

// MaxTokenizer is the longest tokenizer file that is read, in bytes: several times the length of
// Llama 3's.
const MaxTokenizer = 64 << 20

// GPT2Tokens is the size of GPT-2's vocabulary, and GPT2End its last token, which ends texts.
const (
	GPT2Tokens = 50257
	GPT2End    = 50256
)

// tokenizerFiles are the names of tokenizer files in a model's directory.
var tokenizerFiles = []string{
	TokenizerFile, PieceFile, SettingsFile, SpecialFile, AddedFile, VocabFile, MergesFile, "chat_template.jinja",
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

// TokenizerBeside returns the tokenizer's files that lie with the token files at a path, by name: beside the
// first of them (see Beside), or in its directory; none if there are none. dir is the directory that was
// read last, and "" if the path has no token files.
func TokenizerBeside(path string) (texts map[string][]byte, dir string, err error) {
	list, err := List(path, nil, 0)
	if err != nil {
		if !isTokenFile(path) {
			err = nil
		}
		return nil, "", err
	}
	first := slices.IndexFunc(list, File.hasTokens)
	if first < 0 {
		return nil, "", nil
	}
	file := list[first].Path
	dir = Beside(file)
	if texts, err = ReadTokenizer(dir); err == nil && len(texts) == 0 {
		dir = filepath.Dir(file)
		texts, err = ReadTokenizer(dir)
	}
	return texts, dir, err
}

// Beside returns the directory with the tokenizer's files for the token file PREFIX.bin.
func Beside(path string) string { return strings.TrimSuffix(path, ".bin") + ".tokenizer" }
