package tokenizer

import (
	"errors"
	"strings"
)

// Tokenizer turns text into ids. Goroutines may share it.
type Tokenizer struct {
	Vocab int // ids are less than Vocab

	begin     []int32 // tokens before every document
	endOfText int32   // token after every document
	composes  bool    // texts are put into Unicode's NFC
	leads     leading // whether a space is put before the text of a document
	// raw and normal are the added tokens of documents that are searched for before and after
	// normalisation. Without a token that is not special there are none.
	raw, normal spellings
	// cut returns the last place in text, at from or later, where the text may be divided without
	// changing ids. It returns 0 if it finds none.
	cut     func(text []byte, from int) int
	encoder func() *encoder
}

const (
	// remembered bounds the number of pieces whose ids an encoder keeps. They take a few megabytes,
	// and are more than the words of most corpora.
	remembered = 1 << 16
	// longPiece is the length in bytes from which on the ids of a piece are not kept.
	longPiece = 64
)

// encoder encodes text for one goroutine. It cuts the text into pieces that are encoded separately,
// gets the ids of a piece from a library, and keeps them, because words repeat.
type encoder struct {
	piece func(text string) int // length in bytes of the first piece of text
	ask   func(piece string) ([]int32, error)
	known map[string][]int32
}

// pieceError is an error in the piece of a text at a byte position.
type pieceError struct {
	error
	position int
}

// encode appends the ids of a text, which is UTF-8, to out. Errors are
// pieceErrors.
func (e *encoder) encode(out []int32, text string) ([]int32, error) {
	for position := 0; position < len(text); {
		word := text[position : position+e.piece(text[position:])]
		tokens, ok := e.known[word]
		if !ok {
			var err error
			if tokens, err = e.ask(word); err != nil {
				if failed, ok := errors.AsType[pieceError](err); ok { // at a byte of the piece
					return out, pieceError{failed.error, position + failed.position}
				}
				return out, pieceError{err, position}
			}
			e.remember(word, tokens)
		}
		out = append(out, tokens...)
		position += len(word)
	}
	return out, nil
}

// remember keeps the ids of a piece. If there are too many it first drops all of them.
func (e *encoder) remember(word string, tokens []int32) {
	if len(word) >= longPiece {
		return
	}
	if len(e.known) == remembered {
		clear(e.known)
	}
	e.known[strings.Clone(word)] = tokens // word is part of a larger text
}
