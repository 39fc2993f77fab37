package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"dynmo/src/data"
)

// tokenizersClass is the class of transformers that uses tokenizer.json unchanged. LlamaTokenizer
// replaces the rules for spaces in that file.
const tokenizersClass = "PreTrainedTokenizerFast"

// AddTokenizerJSON returns the files of a tokenizer. If v is of a tokenizer.model without
// tokenizer.json, it adds a tokenizer.json with the same ids. A tokenizer_config.json with another
// class gets tokenizersClass, and a missing one is added. positions is the length of the longest text. The note says what has
// changed, or why there is no tokenizer.json; it may be empty.
func (v *Vocabulary) AddTokenizerJSON(files map[string][]byte, positions int) (all map[string][]byte, note string, err error) {
	if v.pieces == nil || files[data.TokenizerFile] != nil {
		return files, "", nil
	}
	text, err := v.pieces.tokenizerJSON(v.begin)
	if err != nil {
		return files, fmt.Sprintf("without %s: %v: other programs may give other ids", data.TokenizerFile, err), nil
	}
	all = maps.Clone(files)
	all[data.TokenizerFile] = text
	const class = "tokenizer_class"
	settings, ok := files[data.SettingsFile]
	if !ok {
		members := map[string]any{
			"eos_token": v.tokens[v.End], "unk_token": v.pieces.unknown, class: tokenizersClass,
			"clean_up_tokenization_spaces": false, "model_max_length": positions,
		}
		if begin := v.Begin(); begin >= 0 {
			members["bos_token"] = v.tokens[begin]
		}
		all[data.SettingsFile] = indented(members)
		return all, "", nil
	}
	var members map[string]json.RawMessage // values stay as they are written
	if err := json.Unmarshal(settings, &members); err != nil {
		return nil, "", fmt.Errorf("%s: %w", data.SettingsFile, err)
	}
	if was, ok := members[class]; ok && string(was) != `"`+tokenizersClass+`"` {
		members[class] = json.RawMessage(`"` + tokenizersClass + `"`)
		all[data.SettingsFile] = indented(members)
		note = fmt.Sprintf("%s: %s is %s, was %s: transformers then uses the new %s", data.SettingsFile, class, tokenizersClass, was, data.TokenizerFile)
	}
	return all, note, nil
}

// tokenizerJSON returns tokenizer.json with the ids of the model. begin are the tokens before every
// text. An error says why this file cannot have the same ids.
func (m *pieceModel) tokenizerJSON(begin []int32) ([]byte, error) {
	merges, err := m.merges()
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	added := []addedToken{}
	for id, kind := range m.types {
		switch kind {
		case userDefinedPiece:
			return nil, fmt.Errorf("piece %d, %.100q, is user-defined", id, m.spelt[id])
		case controlPiece, unknownPiece:
			added = append(added, addedToken{ID: int32(id), Content: m.spelt[id], Special: true})
		}
	}
	space := object{"String": " "}
	normalizers := []object{{"type": "Replace", "pattern": space, "content": marked}}
	decoders := []object{{"type": "Replace", "pattern": object{"String": marked}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}
	if m.prefix {
		normalizers = slices.Insert(normalizers, 0, object{"type": "Prepend", "prepend": marked})
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	var first, second []object
	special := object{}
	for _, id := range begin {
		name := m.spelt[id]
		first = append(first, object{"SpecialToken": object{"id": name, "type_id": 0}})
		second = append(second, object{"SpecialToken": object{"id": name, "type_id": 1}})
		special[name] = object{"id": name, "ids": []int32{id}, "tokens": []string{name}}
	}
	first = append(first, object{"Sequence": object{"id": "A", "type_id": 0}})
	second = append(second, object{"Sequence": object{"id": "B", "type_id": 1}})
	return indented(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer":     object{"type": "Sequence", "normalizers": normalizers},
		"pre_tokenizer":  nil,
		"post_processor": object{"type": "TemplateProcessing", "single": first, "pair": slices.Concat(first, second), "special_tokens": special},
		"decoder":        object{"type": "Sequence", "decoders": decoders},
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": m.unknown, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": json.RawMessage(vocabText(m.spelt)), "merges": merges,
		},
	}), nil
}

// merges returns the pairs of pieces that become a third, best first. Sentencepiece makes the merge
// with the best score, and of equal scores the leftmost. tokenizer.json has a rank for every pair.
// An error says that no ranks give the same ids.
func (m *pieceModel) merges() ([]string, error) {
	var made []int // pieces that merges make
	pairs := make(map[int][]string)
	for id, piece := range m.spelt {
		if m.types[id] != normalPiece || strings.Contains(piece, " ") { // a text has ▁ for a space
			continue
		}
		for at := range piece {
			if at == 0 {
				continue
			}
			left, right := piece[:at], piece[at:]
			isLeft, isRight := m.isNormal(left), m.isNormal(right)
			switch {
			case isLeft && isRight:
				pairs[id] = append(pairs[id], left+" "+right)
			case (isLeft || isCharacter(left)) && (isRight || isCharacter(right)):
				return nil, fmt.Errorf("piece %d, %.100q, has a character that is no piece", id, piece)
			}
		}
		if len(pairs[id]) > 0 {
			made = append(made, id)
		}
	}
	slices.SortFunc(made, func(a, b int) int { return cmp.Compare(m.scores[b], m.scores[a]) })
	merges := []string{} // never null
	for i, id := range made {
		if i > 0 && m.scores[made[i-1]] == m.scores[id] {
			return nil, fmt.Errorf("pieces %d, %.100q, and %d, %.100q, have the same score", made[i-1], m.spelt[made[i-1]], id, m.spelt[id])
		}
		merges = append(merges, pairs[id]...)
	}
	return merges, nil
}

func (m *pieceModel) isNormal(text string) bool {
	id, ok := m.ids[text]
	return ok && m.types[id] == normalPiece
}

func isCharacter(text string) bool { return utf8.RuneCountInString(text) == 1 }
