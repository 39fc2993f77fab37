package config

import (
	"errors"
	"fmt"
	"strings"
)

// TOML returns every setting as a file that Load reads back to an equal Config. Each setting has
// its meaning, unit, allowed values and default. c must be valid.
func (c Config) TOML() string {
	var b strings.Builder
	table := ""
	for _, s := range settings(&c) {
		if s.table != table {
			if table != "" {
				b.WriteString("\n")
			}
			table = s.table
			fmt.Fprintf(&b, "# %s\n[%s]\n", sentence(s.tableTag.Get("doc"), s.tableTag.Get("when")), table)
		}
		wanted := s.wanted()
		if unit, ok := s.tag.Lookup("unit"); ok {
			wanted += " (" + unit + ")"
		}
		standard := literal(s.parse(s.tag.Get("default")))
		fmt.Fprintf(&b, "# %s\n# %s; default %s\n%s = %s\n",
			sentence(s.tag.Get("doc"), s.tag.Get("when")), wanted, standard, s.key, s.text())
	}
	return b.String()
}

// MarshalText returns the settings as TOML, for encodings of other formats.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.TOML()), nil }

// UnmarshalText reads the output of MarshalText without checking that the settings are valid.
func (c *Config) UnmarshalText(text []byte) error {
	*c = Default()
	l := loader{list: settings(c), origin: map[string]string{}}
	l.file("settings", text)
	return errors.Join(l.problems...)
}

// sentence appends the conditions of a setting to its description.
func sentence(doc, when string) string {
	if when == "" {
		return doc
	}
	if !strings.Contains(when, "=") {
		when += " is set"
	}
	when = strings.NewReplacer("=", " is ", "|", " or ", " or ", ", or ").Replace(when)
	return fmt.Sprintf("%s (only where %s)", doc, when)
}

// Files returns the paths of the files that every rank of a run reads, by setting. The corpus and
// validation data are not among them: they may be directories.
func (c Config) Files() map[string]string {
	files := make(map[string]string)
	list := settings(&c)
	for _, s := range list {
		if _, ignored := s.silencer(list); !ignored && s.tag.Get("file") != "" && s.text() != `""` {
			files[s.name()] = s.value.String()
		}
	}
	return files
}
