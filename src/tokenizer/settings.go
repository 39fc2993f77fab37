package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/data"
)

// settings is the part of tokenizer_config.json that is used beside tokenizer.json or
// tokenizer.model.
type settings struct {
	End      json.RawMessage      `json:"eos_token"`            // the token that ends texts
	AddBegin *bool                `json:"add_bos_token"`        // whether texts of sentencepiece models get a begin token
	Plain    bool                 `json:"split_special_tokens"` // whether special tokens in texts are plain text
	Added    map[int32]addedToken `json:"added_tokens_decoder"` // by id
}

// applySettings applies the files beside tokenizer.json or tokenizer.model, one after the other. An
// absent file changes nothing. at is the origin of the files, for errors. An error names the file, and
// the token or setting that is not supported.
func (v *Vocabulary) applySettings(at string, files map[string][]byte) error {
	var s settings
	named := make(map[string]bool) // the texts of special tokens that members such as bos_token name
	for _, f := range []struct {
		name  string
		apply func(text []byte) error
	}{
		{data.SettingsFile, func(text []byte) error { return v.applyConfig(&s, named, text, files[data.TokenizerFile] == nil) }},
		{data.SpecialFile, func(text []byte) error { return v.addNamed(named, text) }},
		{data.AddedFile, func(text []byte) error { return v.applyAdded(s, named, text) }},
	} {
		if text, ok := files[f.name]; ok {
			if err := f.apply(text); err != nil {
				return fmt.Errorf("%s: %w", filepath.Join(at, f.name), err)
			}
		}
	}
	return nil
}

// applyConfig reads tokenizer_config.json into s and applies it. isPieces says that the vocabulary is
// from tokenizer.model.
func (v *Vocabulary) applyConfig(s *settings, named map[string]bool, text []byte, isPieces bool) error {
	if err := json.Unmarshal(text, s); err != nil {
		return err
	}
	if err := v.set(*s, isPieces); err != nil {
		return err
	}
	return v.addNamed(named, text)
}

// applyAdded applies added_tokens.json, the ids of added tokens by text. It does nothing if
// tokenizer_config.json (s) lists added tokens: then only that list counts.
func (v *Vocabulary) applyAdded(s settings, named map[string]bool, text []byte) error {
	var ids map[string]int32
	if err := json.Unmarshal(text, &ids); err != nil || s.Added != nil {
		return err
	}
	for _, content := range slices.Sorted(maps.Keys(ids)) {
		id, isSpecial := ids[content], named[content]
		if v.added[id].Content == content {
			continue // transformers takes the properties in tokenizer.json
		}
		if err := v.addKnown(addedToken{ID: id, Content: content, Normalized: !isSpecial, Special: isSpecial}); err != nil {
			return err
		}
	}
	return nil
}

// set applies the settings. The error names a setting, or a token that does not exist.
func (v *Vocabulary) set(s settings, isPieces bool) error {
	if s.Plain {
		return errors.New("split_special_tokens: true is not supported, want false")
	}
	end, err := tokensIn(s.End)
	if err != nil {
		return fmt.Errorf("eos_token: %w", err)
	}
	if len(end) > 0 {
		id := slices.Index(v.tokens, end[0].Content)
		if id < 0 {
			return fmt.Errorf("eos_token: %.100q is no token of the vocabulary", end[0].Content)
		}
		v.End = int32(id)
	}
	if isPieces && s.AddBegin != nil && !*s.AddBegin {
		v.begin = nil
	}
	for _, id := range slices.Sorted(maps.Keys(s.Added)) {
		a := s.Added[id]
		a.ID = id
		if err := v.addKnown(a); err != nil {
			return fmt.Errorf("added_tokens_decoder: %w", err)
		}
	}
	return nil
}

// addKnown makes a token of the vocabulary an added token: from now on texts are searched for it. An
// error says that the vocabulary lacks the token, or that a property of the token is not supported.
func (v *Vocabulary) addKnown(a addedToken) error {
	if v.pieces != nil {
		a.Normalized = false // the text of a sentencepiece model is not normalised
	}
	if a.ID < 0 || int(a.ID) >= len(v.tokens) || v.tokens[a.ID] != a.Content {
		return fmt.Errorf("%d, %.100q: %s has no such token, want a %s that has it", a.ID, a.Content, v.source(), data.TokenizerFile)
	}
	if err := a.check(); err != nil {
		return err
	}
	v.search(a)
	return nil
}

// source returns the name of the file that the vocabulary comes from.
func (v *Vocabulary) source() string {
	if v.pieces != nil {
		return data.PieceFile
	}
	return data.TokenizerFile
}

// addNamed adds the special tokens that members of the JSON object text name, such as bos_token. It puts
// the texts of these tokens into named. Names that are no token of the vocabulary add nothing. A list
// such as additional_special_tokens does not make a token special that is an added token already.
func (v *Vocabulary) addNamed(named map[string]bool, text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	found := make(map[string]addedToken)
	for _, member := range slices.Sorted(maps.Keys(members)) {
		if !strings.HasSuffix(member, "_token") && !strings.HasSuffix(member, "_special_tokens") { // additional_ and extra_
			continue
		}
		tokens, err := tokensIn(members[member])
		if err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
		isList := strings.HasPrefix(strings.TrimSpace(string(members[member])), "[")
		for _, a := range tokens {
			a.Special = !isList
			found[a.Content], named[a.Content] = a, true
		}
	}
	for id, token := range v.tokens {
		a, ok := found[token]
		if !ok {
			continue
		}
		if known, ok := v.added[int32(id)]; ok && known.Content == token {
			known.Special = known.Special || a.Special
			v.search(known)
			continue
		}
		a.ID, a.Special = int32(id), true
		if err := v.addKnown(a); err != nil {
			return err
		}
	}
	return nil
}
