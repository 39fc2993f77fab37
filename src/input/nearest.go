package input

import (
	"cmp"
	"slices"
)

// Nearest returns the known word with the least distance to another; the first
// of several. It panics if none is known.
func Nearest(word string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return cmp.Compare(Distance(word, a), Distance(word, b)) })
}

// longestWord bounds the words between which a distance is computed, in bytes: no
// key is as long, and the work is the product of two lengths.
const longestWord = 64

// Distance is the least number of bytes to insert, delete or replace that
// makes a from b (Levenshtein 1966), of the first 64 bytes of each.
func Distance(a, b string) int {
	a, b = a[:min(len(a), longestWord)], b[:min(len(b), longestWord)]
	row := make([]int, len(b)+1) // row[j]: distance of the prefixes a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
