package main

import "strings"

// commandLine joins words to a line that a shell splits into the same words.
func commandLine(words []string) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = word
		if word == "" || strings.ContainsFunc(word, isSpecial) {
			list[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// isSpecial reports whether a shell may take a character for more than itself.
func isSpecial(r rune) bool {
	plain := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_=+,./:@%", r)
	return !plain
}
