package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns a text in normalisation form C of Unicode 15.0 (UAX 15), as Hugging Face's tokenizers
// do. Package norm only says how much of the text has this form already. Its own form adds U+034F to
// long runs of combining marks, and joins a letter with a mark behind another letter such as U+0DCF.
func nfc(text string) string {
	n := norm.NFC.QuickSpanString(text)
	if n == len(text) {
		return text
	}
	var out strings.Builder
	for {
		out.WriteString(text[:n])
		if text = text[n:]; text == "" {
			return out.String()
		}
		end := beforeBoundary(text)
		out.WriteString(composed(text[:end]))
		text = text[end:]
		n = norm.NFC.QuickSpanString(text)
	}
}

// beforeBoundary returns the length of the begin of a text that is composed by itself. text must not
// be empty.
func beforeBoundary(text string) int {
	_, end := utf8.DecodeRuneInString(text)
	for end < len(text) && !norm.NFC.PropertiesString(text[end:]).BoundaryBefore() {
		_, n := utf8.DecodeRuneInString(text[end:])
		end += n
	}
	return end
}

// composed is nfc by the definition: decompose, sort combining marks by class, compose.
func composed(text string) string {
	var all []rune
	for _, r := range text {
		all = append(all, []rune(norm.NFD.String(string(r)))...)
	}
	for start := 0; start < len(all); start++ {
		end := start
		for end < len(all) && class(all[end]) > 0 {
			end++
		}
		slices.SortStableFunc(all[start:end], func(a, b rune) int { return int(class(a)) - int(class(b)) })
		start = max(start, end-1)
	}
	out, starter, last := all[:0], -1, uint8(0) // last is the class of the last character of out
	for _, r := range all {
		if starter >= 0 && (last == 0 || last < class(r)) {
			if joined := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(joined) == 1 {
				out[starter] = joined[0]
				continue
			}
		}
		if last = class(r); last == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return string(out)
}

// class returns the canonical combining class of a character.
func class(r rune) uint8 { return norm.NFD.PropertiesString(string(r)).CCC() }

// beforeNFC returns the offset in text of the characters that become the byte at of nfc(text).
func beforeNFC(text string, at int) int {
	start := 0
	for start < len(text) {
		n := beforeBoundary(text[start:])
		size := len(nfc(text[start : start+n]))
		if at < size {
			break
		}
		at, start = at-size, start+n
	}
	return start
}
