package config

import (
	"cmp"
	"slices"
)

// wrongTable is the most that a wrong table adds to the distance of a key: a
// key in the wrong table is as near as two typing errors.
const wrongTable = 2

// nearest returns the known setting with the least editing distance to an
// unknown table.key; the first of several.
func (l *loader) nearest(table, key string) setting {
	return slices.MinFunc(l.list, func(a, b setting) int {
		far := func(s setting) int { return distance(key, s.key) + min(wrongTable, distance(table, s.table)) }
		return cmp.Compare(far(a), far(b))
	})
}

// nearestTable returns the known table with the least editing distance.
func (l *loader) nearestTable(table string) string {
	return slices.MinFunc(l.list, func(a, b setting) int {
		return cmp.Compare(distance(table, a.table), distance(table, b.table))
	}).table
}

// distance is the least number of bytes to insert, delete or replace that
// makes a from b (Levenshtein 1966).
func distance(a, b string) int {
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
