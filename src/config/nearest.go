package config

import (
	"cmp"
	"slices"

	"dynmo/src/input"
)

// wrongTable is the most that a wrong table adds to the distance of a key: a
// key in the wrong table is as near as two typing errors.
const wrongTable = 2

// nearest returns the known setting with the least editing distance to an
// unknown table.key; the first of several.
func (l *loader) nearest(table, key string) setting {
	return slices.MinFunc(l.list, func(a, b setting) int {
		far := func(s setting) int {
			return input.Distance(key, s.key) + min(wrongTable, input.Distance(table, s.table))
		}
		return cmp.Compare(far(a), far(b))
	})
}

// nearestTable returns the known table with the least editing distance.
func (l *loader) nearestTable(table string) string {
	return slices.MinFunc(l.list, func(a, b setting) int {
		return cmp.Compare(input.Distance(table, a.table), input.Distance(table, b.table))
	}).table
}
