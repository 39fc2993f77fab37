package data

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/input"
)

// Files of a byte-level encoding, as GPT-2's.
const (
	vocabFile  = "vocab.json"
	mergesFile = "merges.txt"
)

// maxVocabulary is the longest file of a vocabulary that is read, in bytes: ten
// times GPT-2's.
const maxVocabulary = 16 << 20

// OpenVocabulary reads vocab.json and merges.txt of a directory. Errors name the file
// and what is wrong; they are fs.ErrNotExist where it has neither.
func OpenVocabulary(dir string) (*Vocabulary, error) {
	path := filepath.Join(dir, vocabFile)
	text, err := input.Read(path, maxVocabulary)
	if err != nil {
		return nil, err
	}
	v, err := parseVocabulary(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(dir, mergesFile)
	if text, err = input.Read(path, maxVocabulary); err != nil {
		return nil, err
	}
	if err := v.parseMerges(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// parseVocabulary reads vocab.json: an object of ids, each below how many there
// are, by token, whose bytes are spelt as letters.
func parseVocabulary(text []byte) (*Vocabulary, error) {
	var ids map[string]int32
	if err := json.Unmarshal(text, &ids); err != nil {
		return nil, err
	}
	v := &Vocabulary{End: -1, ids: make(map[string]int32), tokens: make([]string, len(ids)), merges: make(map[[2]int32]merge)}
	seen := make([]bool, len(ids))
	for _, spelt := range slices.Sorted(maps.Keys(ids)) {
		id, token := ids[spelt], unspell(spelt)
		if id < 0 || int(id) >= len(ids) || seen[id] {
			return nil, fmt.Errorf("token %.100q has id %d, want each of 0 to %d once", spelt, id, len(ids)-1)
		}
		seen[id] = true
		v.tokens[id], v.ids[token] = token, id
	}
	if id, ok := ids[gpt2End]; ok {
		v.End = id
	}
	return v, nil
}

// parseMerges reads merges.txt: a line for each merge, first to last, behind one that
// says which version it is.
func (v *Vocabulary) parseMerges(text string) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || number == 1 && strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		a, hasLeft := v.ids[unspell(left)]
		b, hasRight := v.ids[unspell(right)]
		id, has := v.ids[unspell(left)+unspell(right)]
		if !ok || !hasLeft || !hasRight || !has {
			return fmt.Errorf("line %d: %.100q: want two tokens of %s that make a third", number, line, vocabFile)
		}
		if _, twice := v.merges[[2]int32{a, b}]; !twice {
			v.merges[[2]int32{a, b}] = merge{number, id}
		}
	}
	return nil
}

// Files returns the content of the files that Hugging Face's GPT-2 tokenizer reads, by
// name. positions is the length of the longest text.
func (v *Vocabulary) Files(positions int) (map[string][]byte, error) {
	var vocab, merges strings.Builder
	for id, token := range v.tokens {
		spelt, err := json.Marshal(spell(token))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&vocab, "%s%s: %d", map[bool]string{true: "{", false: ", "}[id == 0], spelt, id)
	}
	vocab.WriteString("}\n")
	merges.WriteString("#version: 0.2\n")
	order := slices.SortedFunc(maps.Keys(v.merges), func(a, b [2]int32) int { return v.merges[a].rank - v.merges[b].rank })
	for _, pair := range order {
		fmt.Fprintf(&merges, "%s %s\n", spell(v.tokens[pair[0]]), spell(v.tokens[pair[1]]))
	}
	var special *string // left out it would be GPT-2's
	if v.End >= 0 && v.tokens[v.End] == gpt2End {
		special = new(string)
		*special = gpt2End
	}
	settings, err := json.MarshalIndent(map[string]any{
		"add_prefix_space": false, "bos_token": special, "eos_token": special, "unk_token": special,
		"model_max_length": positions, "tokenizer_class": "GPT2Tokenizer",
	}, "", "  ")
	return map[string][]byte{
		vocabFile: []byte(vocab.String()), mergesFile: []byte(merges.String()), "tokenizer_config.json": append(settings, '\n'),
	}, err
}

// spelling spells every byte as a letter that prints (openai/gpt-2, encoder.py,
// bytes_to_unicode): itself in Latin-1 where that prints and is no space, else the next
// letter from U+0100 on.
var spelling, ofLetter = func() (spelling [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte)
	next := rune(256)
	for b := range spelling {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ') {
			r, next = next, next+1
		}
		spelling[b], bytes[r] = r, byte(b)
	}
	return spelling, bytes
}()

// spell returns the letters of a token's bytes.
func spell(token string) string {
	var b strings.Builder
	for i := range len(token) {
		b.WriteRune(spelling[token[i]])
	}
	return b.String()
}

// unspell returns the bytes that letters spell. A token that holds anything else is
// itself: it was added to the vocabulary as text.
func unspell(spelt string) string {
	token := make([]byte, 0, len(spelt))
	for _, r := range spelt {
		b, ok := ofLetter[r]
		if !ok {
			return spelt
		}
		token = append(token, b)
	}
	return string(token)
}
