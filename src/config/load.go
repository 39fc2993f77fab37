package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/files"
)

// Default returns the settings of an empty file.
func Default() Config {
	var c Config
	for _, s := range settings(&c) {
		if !s.assign(s.parse(s.tag.Get("default"))) {
			panic("config: a tag's default has the wrong type")
		}
	}
	return c
}

// Load returns the settings in the TOML file at path ("" stands for an empty file). It then applies
// sets in order, each "table.key=value".
//
// An error joins all problems, one line each: the place, table.key = value, and the wanted values.
// An unknown key comes with the nearest known key.
func Load(path string, sets []string) (Config, error) {
	c, _, err := LoadWithNotes(path, sets)
	return c, err
}

// LoadWithNotes is Load. The notes name the settings that were given under former names.
func LoadWithNotes(path string, sets []string) (c Config, notes []string, err error) {
	var source []byte
	if path != "" {
		if source, err = files.Read(path, files.Settings); err != nil {
			return Config{}, nil, fmt.Errorf("config: %w", err)
		}
	}
	return load(path, source, sets)
}

// Assign sets settings by name: pairs is "table.key" and value in turn. Copies of the Config keep
// their values. It panics if a setting does not exist, or a value has another type.
func (c *Config) Assign(pairs ...any) {
	c.own()
	l := loader{list: settings(c), origin: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		l.set(fmt.Sprint(pairs[i], "=", pairs[i+1]))
	}
	if l.problems != nil {
		panic(errors.Join(l.problems...))
	}
}

// Recorded returns the settings that a run wrote into its directory. Keys of other versions, which
// this version does not know, are left out and returned.
func Recorded(path string) (c Config, unknown []string, err error) {
	source, err := files.Read(path, files.Settings)
	if err != nil {
		return Config{}, nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, source)
}

// Parse is Recorded for a text; name is its name in errors.
func Parse(name string, source []byte) (c Config, unknown []string, err error) {
	c = Default()
	l := loader{list: settings(&c), origin: map[string]string{}, lenient: true}
	l.file(name, source)
	if err := l.err(c); err != nil {
		return Config{}, nil, err
	}
	return c, l.unknown, nil
}

// load is LoadWithNotes for the contents of the file.
func load(path string, source []byte, sets []string) (c Config, notes []string, err error) {
	c = Default()
	l := loader{list: settings(&c), origin: map[string]string{}}
	l.file(path, source)
	for _, set := range sets {
		l.set(set)
	}
	if err := l.err(c); err != nil {
		return Config{}, nil, err
	}
	return c, l.notes, nil
}

// err returns the problems of loading. If there are none it checks the settings themselves.
func (l *loader) err(c Config) error {
	if l.problems == nil {
		l.problems = c.problems(l.origin)
	}
	return errors.Join(l.problems...)
}

// loader sets settings and remembers where each was set.
type loader struct {
	list     []setting
	origin   map[string]string // table.key -> "file:line" or "--set"
	problems []error
	lenient  bool     // whether unknown keys are left out
	unknown  []string // unknown keys and tables that were left out
	notes    []string // remarks about former names in use
}

func (l *loader) refuse(format string, args ...any) {
	l.problems = append(l.problems, fmt.Errorf(format, args...))
}

// assignment is a key of a file and its value. If top is set, it is an entry at the top of the
// file, where only tables are allowed.
type assignment struct {
	line       int
	top        bool
	table, key string
	value      any
}

// mostKeys bounds the number of keys in a file. There are some hundred settings, and finding the
// line of a key takes time proportional to the length of the file.
const mostKeys = 500

// file applies every key of a TOML text, in the order of lines.
func (l *loader) file(path string, source []byte) {
	root, keys, err := files.ParseTOML(path, source)
	if err != nil {
		l.problems = append(l.problems, err)
		return
	}
	if keys > mostKeys {
		l.refuse("%s: %d keys, but there are only %d settings", path, keys, len(l.list))
		return
	}
	var list []assignment
	for table, content := range root {
		keys := content.Keys()
		if len(keys) == 0 {
			list = append(list, assignment{line: content.Line(), top: true, table: table, value: content.Value()})
		}
		for key, n := range keys {
			list = append(list, assignment{line: n.Line(), table: table, key: key, value: n.Value()})
		}
	}
	slices.SortFunc(list, func(a, b assignment) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.table, b.table), cmp.Compare(a.key, b.key))
	})
	for _, a := range list {
		where := fmt.Sprintf("%s:%d", path, a.line)
		if a.top {
			l.checkTop(where, a.table, a.value)
		} else {
			l.apply(where, a.table, a.key, a.value)
		}
	}
}

// checkTop adds a problem for an entry at the top of a file that is not a known table.
func (l *loader) checkTop(where, name string, value any) {
	_, isTable := value.(map[string]any)
	known := slices.ContainsFunc(l.list, func(s setting) bool { return s.table == name })
	switch {
	case !known && l.lenient:
		l.unknown = append(l.unknown, name)
	case !known && isTable:
		l.refuse("%s: [%s]: unknown table; the nearest is [%s]", where, name, l.nearestTable(name))
	case !known:
		l.refuse("%s: %s = %s: key outside any table; the nearest is %s", where, name, shown(literal(value)), l.nearest("", name).name())
	case !isTable:
		l.refuse("%s: %s = %s: wanted a table, [%s]", where, name, shown(literal(value)), name)
	}
}

// set applies one table.key=value of the command line.
func (l *loader) set(text string) {
	name, word, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	table, key, dotted := strings.Cut(name, ".")
	if !ok || !dotted {
		l.refuse("--set %s: wanted table.key=value", text)
		return
	}
	var value any
	if s, known := find(l.list, name); known {
		value = s.parse(strings.TrimSpace(word))
	}
	l.apply("--set", table, key, value)
}

// apply sets one setting.
func (l *loader) apply(where, table, key string, value any) {
	s, known := find(l.list, table+"."+key)
	if !known && l.lenient {
		l.unknown = append(l.unknown, table+"."+key)
		return
	}
	if !known {
		l.refuse("%s: %s.%s: unknown key; the nearest is %s", where, table, key, l.nearest(table, key).name())
		return
	}
	if s.name() != table+"."+key {
		l.notes = append(l.notes, fmt.Sprintf("%s: %s.%s is called %s now", where, table, key, s.name()))
	}
	if !s.assign(value) {
		l.refuse("%s: %s = %s: wanted %s", where, s.name(), shown(literal(value)), s.wanted())
	}
	l.origin[s.name()] = where
}

// shown returns a value, cut if it is too long for a line.
func shown(literal string) string {
	const most = 60
	if len(literal) <= most {
		return literal
	}
	return strings.ToValidUTF8(literal[:most], "") + "…"
}

// wrongTable is the largest distance that a wrong table adds to the distance of a key. A key in the
// wrong table is as near as a key with two typing errors.
const wrongTable = 2

// nearest returns the known setting with the least edit distance to an unknown table.key, the first
// of several.
func (l *loader) nearest(table, key string) setting {
	return slices.MinFunc(l.list, func(a, b setting) int {
		far := func(s setting) int {
			return files.Distance(key, s.key) + min(wrongTable, files.Distance(table, s.table))
		}
		return cmp.Compare(far(a), far(b))
	})
}

// nearestTable returns the known table with the least edit distance.
func (l *loader) nearestTable(table string) string {
	return slices.MinFunc(l.list, func(a, b setting) int {
		return cmp.Compare(files.Distance(table, a.table), files.Distance(table, b.table))
	}).table
}
