package data

import (
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// graphemeJoiner is the character that package norm puts into runs of more than 30 combining marks.
const graphemeJoiner = "\u034f"

// nfc returns a text in normalisation form C of Unicode 15.0 (UAX 15). Unlike package norm it adds
// no grapheme joiner to long runs of combining marks. Hugging Face's tokenizers add none.
func nfc(text string) string {
	if out := norm.NFC.String(text); strings.Count(out, graphemeJoiner) == strings.Count(text, graphemeJoiner) {
		return out
	}
	return composed(text)
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
		n := max(1, norm.NFC.NextBoundaryInString(text[start:], true))
		size := len(nfc(text[start : start+n]))
		if at < size {
			break
		}
		at, start = at-size, start+n
	}
	return start
}
